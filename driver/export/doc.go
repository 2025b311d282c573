// Package export makes the volumes of one SPDK target available to hosts over NVMe over Fabrics or
// iSCSI, and ends that access. Each volume has one export, which admits one host, or several hosts
// that share the volume.
//
// Each method reads the state, performs the missing steps, and reads the state again, so a call can
// be repeated after a crash or a lost reply at any point. The package identifies a volume by its
// UUID, which is also the name of its bdev.
//
// Package export must not depend on gRPC, CSI messages, how volumes are created, or how nodes
// attach exports.
package export
