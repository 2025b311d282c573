// Package blobstore reads the metadata of SPDK's blobstore, on which lvstores are made, and looks for damage in it.
//
// It only reads. A target that runs may write meanwhile: a finding counts when it is there again after a while.
//
// On the device: a super block in the first 4 KiB says where the metadata pages are. A metadata page has 4 KiB, and a checksum. Blob
// N, whose id is 0x100000000+N, begins in page N; it may go on in further pages. Where a blob's clusters are is written either
// in these pages (run lengths) or in extent pages, of 512 clusters each, that the blob's extent table lists.
package blobstore
