// Package cluster starts a Kubernetes cluster from programs: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, and nodes with containerd and kubelet. It runs inside
// a sandbox (package sandbox), which ends everything that it starts, so it has no code to stop a
// cluster. Each node is a machine in the sandbox, whose power can be turned off and on. The
// package knows neither the driver nor what runs in the pods.
package cluster
