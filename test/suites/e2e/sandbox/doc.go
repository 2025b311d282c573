// Package sandbox runs this program again in its own mount, network, process, host name and IPC
// namespaces. When the first process of the sandbox ends, the kernel ends all others, and removes
// every mount and network interface. Run cleans up everything that namespaces do not isolate:
// kernel settings, loop devices, cgroups and the state directory. The cleanup works even after an
// earlier run has crashed. The package does not depend on Kubernetes.
package sandbox
