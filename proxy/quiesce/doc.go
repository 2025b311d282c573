// Package quiesce takes snapshots of logical volumes that hosts are writing to, and deletes
// snapshots below them.
//
// SPDK's bdev_lvol_snapshot does not wait for I/O in flight, and such I/O can then overwrite the
// lvstore's metadata. So the package first freezes the volumes: it sets all paths to them to ANA
// inaccessible, so that hosts hold back I/O, and waits for I/O in flight. Then it makes the
// snapshot or deletion, and restores the states of the paths.
//
// A host waits for an inaccessible path without a limit. So the paths are recorded in a journal
// before they are frozen, and an entry that no running process works on is thawed by a running
// proxy, by the next one, or by the command `spdk-proxy thaw`.
//
// The package may not know who calls, what is allowed, or how a call is transported. It imports no
// other stage of the proxy, and reaches the target through a Connect.
package quiesce
