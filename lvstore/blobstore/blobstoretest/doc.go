// Package blobstoretest writes lvstore metadata as SPDK does, for tests.
//
// It imports only the standard library, not even package blobstore, so that it does not repeat a
// mistake made there.
package blobstoretest
