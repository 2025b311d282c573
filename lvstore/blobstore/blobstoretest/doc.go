// Package blobstoretest writes lvstore metadata as SPDK does, for tests.
//
// It imports only the standard library. It does not import package blobstore, so that it does not
// repeat mistakes made there.
package blobstoretest
