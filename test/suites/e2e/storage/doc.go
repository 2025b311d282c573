// Package storage is the storage server of the cluster's tests: a simulated target whose volumes
// are files with real data, and spdk-proxy as a process of its own. It says how the driver reaches
// them, and what the target has. It knows nothing of Kubernetes.
package storage
