// Package storecheck looks for damage in the lvstores of a target that runs, and on devices and images whose target is down.
//
// It only reads: files and block devices of the host by itself, NVMe namespaces through the target. What the metadata means is
// package blobstore's.
package storecheck
