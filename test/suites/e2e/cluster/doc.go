// Package cluster starts a Kubernetes cluster from programs: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, and nodes with containerd and kubelet. It runs inside
// a sandbox (package sandbox), which ends all processes, so the package does not contain code for
// stopping a cluster. Each node is a machine in the sandbox that can be powered off and on. The
// package does not depend on the driver or on what runs in the pods.
package cluster
