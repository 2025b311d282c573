// Package blobstore reads the metadata of SPDK's blobstore, on which lvstores are made, and looks
// for damage in it.
//
// It only reads. A running target may write meanwhile, so damage counts only if several passes find
// it.
//
// The package imports the standard library only. It must not depend on how a device is reached, on
// a running target, or on its users: proxy, driver and commands may all import it.
//
// The format on the device: a super block in the first 4 KiB has the position of the metadata
// pages. A metadata page has 4 KiB and a checksum. Blob N, whose id is 0x100000000+N, begins in
// page N and may continue in further pages. These pages either contain the blob's clusters (as run
// lengths), or an extent table, which lists extent pages of 512 clusters each.
package blobstore
