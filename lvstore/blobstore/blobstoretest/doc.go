// Package blobstoretest writes lvstore metadata as SPDK does, for tests.
//
// The package imports only the standard library. It does not import package blobstore, because it
// would then share that package's mistakes.
package blobstoretest
