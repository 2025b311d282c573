// Package cluster starts a Kubernetes cluster of one node from programs: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, containerd and kubelet. It runs inside a sandbox (package sandbox), which ends everything that it starts, so it
// has no code to stop a cluster. It knows neither the driver nor what runs in the pods.
package cluster
