// Package sandbox runs this program again in its own mount, network, process, host name and IPC
// namespaces. When the first process of the sandbox ends, the kernel ends all others, and with them
// every mount and network interface. Run restores what namespaces do not contain: kernel settings,
// loop devices, cgroups and the state directory, even after a crash of an earlier run. The package
// knows nothing about Kubernetes.
package sandbox
