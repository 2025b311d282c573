// Package check looks for damage in the lvstores of a running target and, without a target, in
// lvstores on devices and images.
//
// The package never writes. Package device reads the metadata, and package blobstore interprets it.
//
// The package must not depend on the proxy or the driver. It calls a target directly through the
// target's socket.
package check
