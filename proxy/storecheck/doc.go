// Package storecheck looks for damage in the lvstores of a running target, and on devices and images without one.
//
// It only reads: files and block devices of the host directly, NVMe namespaces through the target. Package blobstore interprets
// the metadata.
package storecheck
