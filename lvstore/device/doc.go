// Package device reads the devices under a running target's lvstores: the host's files and block
// devices directly, NVMe namespaces through the target. It never writes.
//
// The package must not depend on the proxy, the driver, or what a device contains.
package device
