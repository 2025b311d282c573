// Package changes reads which clusters differ between two snapshots on a running target.
//
// SPDK has no RPC for this. Package device opens the lvstore's device, and package blobstore
// interprets the metadata on it. The content of a snapshot does not change, but when SPDK deletes a
// snapshot, it moves clusters between the other snapshots in the chain. Therefore, the caller locks
// the chain, and the package compares each reading with a second reading and with the target's
// report. Any mismatch is an error, because a missing cluster would silently damage backups.
//
// The package must not depend on the proxy or the driver.
package changes
