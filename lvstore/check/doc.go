// Package check looks for damage in the lvstores of a running target, and on devices and images
// without one.
//
// It only reads. Package device reads, and package blobstore interprets the metadata.
//
// The package must not depend on the proxy or the driver: it calls a target by its socket, and
// needs neither of them.
package check
