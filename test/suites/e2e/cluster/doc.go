// Package cluster starts a Kubernetes cluster from programs: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, and nodes with containerd and kubelet. It runs inside
// a sandbox (package sandbox), which ends everything that it starts, so it has no code to stop a
// cluster. Each node is a machine of the sandbox, and can lose its power and get it back. The
// package knows neither the driver nor what runs in the pods.
package cluster
