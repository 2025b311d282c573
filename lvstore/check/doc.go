// Package check looks for damage in lvstores: those of a running target, and those on devices and
// images without a target.
//
// It never writes. Package device reads the metadata, and package blobstore interprets them.
//
// The package must not depend on the proxy or the driver: it calls a target through its socket, and
// needs neither of them.
package check
