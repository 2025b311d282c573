// Package quiesce takes snapshots of logical volumes that hosts are writing to, and deletes
// snapshots below them.
//
// SPDK's bdev_lvol_snapshot does not wait for I/O in flight, and such I/O can then overwrite the
// lvstore's metadata. So the package first freezes the volumes: it sets all paths to them to the
// ANA state inaccessible, so that hosts hold back I/O, and waits for I/O in flight. Then it takes
// or deletes the snapshot, and restores the paths' states.
//
// A host waits for an inaccessible path indefinitely. So the paths are recorded in a journal before
// they are frozen. If no running process is working on an entry, a running proxy, the next proxy,
// or the command `spdk-proxy thaw` thaws its volumes.
//
// The package must not depend on who makes a call, what is allowed, or how a call is transported.
// It imports no other stage of the proxy, and reaches the target through a Connect.
package quiesce
