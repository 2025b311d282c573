// Package export makes volumes of one SPDK target reachable for hosts, over NVMe over Fabrics or
// iSCSI, and ends that. Each volume has one export, to which one host is admitted, or several hosts
// that share the volume.
//
// Each method reads the state, does the missing steps, and reads the state again, so a call can be
// repeated after a crash or a lost reply at any point. This package knows a volume only by its
// UUID, which is the name of its bdev.
//
// It must not know gRPC, CSI's messages, how volumes are made, or how nodes attach what is
// exported.
package export
