// Package mirror runs the mirror of a volume with two replicas on this node: it reads and writes
// the superblocks, applies the rules of package replica, and loads the kernel's dm-mirror tables
// (docs/design/replication.md).
//
// A failed replica is dropped in a fixed order: first the witness removes it from the in-sync set,
// and then the mirror continues without it. Until then, the kernel holds the failed writes. In
// unclear situations, such as a device with other contents, a damaged superblock, a table of
// unknown origin or an unresponsive witness, the package refuses the operation or waits.
//
// The package loads tables with ioctls instead of dmsetup: if the plugin is killed, no child
// process remains that could load a table after the next plugin process has decided otherwise.
//
// Each operation can be repeated after an error or after a restart of the plugin, and then
// continues where the previous attempt ended. The package reads and writes superblocks and logs
// with NVMe commands, which end when a server stops responding. Changing a table can still block in
// the kernel, until all I/O to the mirror's replicas has ended.
//
// A volume has a third replica while one of its replicas is being replaced. The package refuses
// such volumes, because they would need a mirror of mirrors.
//
// The caller passes devices, the witness and the publication as values and functions. Package
// mirror must not depend on Kubernetes, the controller, CSI, gRPC, SPDK's RPCs, transports, file
// systems or encryption.
package mirror
