// Package blobstore reads the metadata of an SPDK blobstore, on which an lvstore is built, and
// looks for damage in it.
//
// The package never writes. A running target may write during a check, so damage counts only if
// every pass finds it.
//
// The package imports only the standard library. It must not depend on how a device is accessed, on
// a running target, or on its importers: the proxy, the driver and the commands may all import it.
//
// The on-device format consists of the following parts. A super block in the first 4 KiB records
// the position of the metadata pages. A metadata page is 4 KiB long and ends with a checksum. Blob
// N, whose id is 0x100000000+N, begins in page N and may continue in further pages. These pages
// contain either the blob's clusters (as run lengths) or an extent table. An extent table lists
// extent pages, each of which describes 512 clusters.
package blobstore
