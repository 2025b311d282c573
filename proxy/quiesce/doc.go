// Package quiesce takes snapshots of logical volumes that hosts are writing to, and
// deletes snapshots below them.
//
// SPDK's bdev_lvol_snapshot does not wait for I/O that is under way, and such I/O
// can then overwrite the lvstore's metadata. So the volumes are frozen first: all
// paths to them become ANA inaccessible, so that hosts hold their I/O back; I/O
// under way is waited for; SPDK does what was asked; the paths become what they
// were.
//
// Nothing on a host bounds how long a path stays inaccessible. So what is frozen
// stands in a journal before it is frozen, and whoever finds an entry that no
// living process works on thaws it: a running proxy, the next one, or the command
// `spdk-proxy thaw`.
//
// It may not know who calls, what is allowed, or how a call travels; no other
// stage of the proxy is imported here. It reaches the target through a Connect.
package quiesce
