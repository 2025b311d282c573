// Package mirror runs the mirror of a volume with two replicas on this node: it reads and writes
// the superblocks, decides by package replica, and loads the kernel's dm-mirror tables
// (docs/design/replication.md). The driver does not use it yet.
//
// A replica that fails is given up in one order only: the witness drops it, and then the mirror
// goes on without it. Until then, the kernel holds the writes that failed. Whatever is unclear is
// refused or waits: a device with other contents, a damaged superblock, a table of another origin,
// a witness that does not respond.
//
// The tables are loaded by ioctls and not by dmsetup: if the plugin is killed, no program remains
// that could load a table after the next plugin has decided otherwise.
//
// Each operation can be repeated after an error or after a restart of the plugin, and goes on where
// the previous one ended. An operation can block in the kernel as long as a replica does not
// respond.
//
// A volume with a third replica, which it has while one of them is replaced, is refused: that needs
// a mirror of mirrors.
//
// The package gets devices, a witness and a publication as values and functions. It must not know
// Kubernetes, the controller, CSI, gRPC, SPDK's RPCs, transports, file systems or encryption.
package mirror
