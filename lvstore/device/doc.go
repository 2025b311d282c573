// Package device reads what the lvstores of a running target are on: files and block devices of the
// host directly, NVMe namespaces through the target. It only reads.
//
// The package must not depend on the proxy or the driver, nor on what is on a device.
package device
