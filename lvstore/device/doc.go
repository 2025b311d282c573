// Package device reads the devices below a running target's lvstores. It reads files and block
// devices of the host directly, and NVMe namespaces through the target. The package never writes.
//
// The package must not depend on the proxy, the driver, or what a device contains.
package device
