// Package storage provides the storage server for the cluster's tests: a simulated target whose
// volumes are files with real data, and spdk-proxy in a separate process. It returns the driver's
// configuration for these programs, and the target's state. It does not depend on Kubernetes.
package storage
