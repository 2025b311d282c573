// Package check looks for damage in lvstores of a running target, and in lvstores on devices and
// images without a target.
//
// The package never writes. Package device reads the metadata, and package blobstore interprets it.
//
// The package must not depend on the proxy or the driver. It calls a target directly through the
// target's socket.
package check
