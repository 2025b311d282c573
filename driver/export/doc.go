// Package export makes volumes of one SPDK target reachable for hosts, over NVMe over Fabrics or iSCSI, and takes that back:
// one export for each volume, and one host at a time that is admitted to it.
//
// Each method reads what is there, does the next missing step, and reads again, so that it may be repeated after a crash or
// a lost reply at any point. A volume is its UUID here, which is the name of its bdev.
//
// It may not know gRPC, CSI's messages, how volumes are made, or how nodes attach what is exported.
package export
