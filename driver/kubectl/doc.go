// Package kubectl is the kubectl plugin: what Kubernetes knows of the driver's volumes, snapshots
// and capacity, and what targets know of them.
//
// It reaches the Kubernetes API through kubectl, which knows the user's cluster and credentials,
// and targets through the controller's pod, where it runs the commands of spdk-csi. It decides
// nothing about targets by itself.
//
// It may not know SPDK's RPC, how targets are reached, or the controller's configuration and
// secrets.
package kubectl
