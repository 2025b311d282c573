// Package blobstoretest writes the metadata of lvstores as SPDK does, for tests.
//
// It imports the standard library only, and not even package blobstore, so that a mistake there is
// not repeated here.
package blobstoretest
