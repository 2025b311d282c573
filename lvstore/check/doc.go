// Package check looks for damage in the lvstores of a running target, and on devices and images
// without one.
//
// It only reads: files and block devices of the host directly, NVMe namespaces through the target.
// Package blobstore interprets the metadata.
//
// The package must not depend on the proxy or the driver: it calls a target by its socket, and
// needs neither of them.
package check
