// Package changes reads which clusters differ between two snapshots of a running target.
//
// SPDK has no RPC for this. The package reads the metadata of the lvstore, which package blobstore
// interprets, from its device, which package device opens. A snapshot does not change, but SPDK
// moves clusters between the snapshots of a chain when it deletes one. So the caller locks the
// chain, and every reading is compared with a second one and with what the target reports. Whatever
// does not match is an error: a list that lacks a cluster would damage backups silently.
//
// The package must not depend on the proxy or the driver.
package changes
