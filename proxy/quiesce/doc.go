// Package quiesce takes snapshots of logical volumes while hosts write to them, and deletes
// snapshots of such volumes.
//
// SPDK's bdev_lvol_snapshot does not wait for I/O in flight, which can then overwrite the lvstore's
// metadata. Therefore, the package first freezes the volumes. It sets the ANA state of all their
// paths to inaccessible, so that hosts hold back new I/O, and waits for the I/O in flight. Then it
// takes or deletes the snapshot, and restores the states of the paths.
//
// Hosts wait indefinitely for an inaccessible path. Therefore, the package records the paths in a
// journal before it freezes them. If the process that is working on an entry dies, another running
// proxy, a new proxy, or the command `spdk-proxy thaw` thaws the entry's volumes.
//
// The package must not depend on who makes a call, which calls are allowed, or how calls reach the
// target. It imports no other stage of the proxy, and reaches the target through a Connect.
package quiesce
