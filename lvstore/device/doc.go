// Package device reads the devices that contain the lvstores of a running target. It reads files
// and block devices of the host directly, and NVMe namespaces through the target. The package never
// writes.
//
// The package must not depend on the proxy, the driver, or the content of a device.
package device
