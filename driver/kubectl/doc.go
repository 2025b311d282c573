// Package kubectl implements the kubectl plugin: it shows the driver's volumes, nodes, snapshots
// and capacity, with information from Kubernetes, the targets and the node plugins.
//
// It also moves the volume of a claim: a Job copies the volume, and then the claim is recreated for
// the copy (move.go).
//
// It reaches the Kubernetes API through kubectl, which has the user's cluster and credentials. It
// reaches targets through the controller's pod, and nodes through the pods of the node plugin, by
// running spdk-csi commands there. It makes no decisions about targets itself.
//
// Package kubectl must not depend on SPDK's RPCs, how targets are reached, or the controller's
// configuration and secrets.
package kubectl
