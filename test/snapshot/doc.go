// Package snapshot takes many snapshots of volumes that are being written, on real targets, and looks at what is left of
// the lvstore, of the snapshots and of the volumes.
//
// SPDK_TGT=/path/to/spdk_tgt names the program; without it these tests are skipped, as it takes a processor core and a
// GiB of memory. SPDK_TGT_ARGS adds arguments. The snapshots are taken by the driver's CreateSnapshot, in this process,
// through a spdk-proxy that is a process of its own. The writer is a small NVMe/TCP host (package initiator), or, with
// -tags kernel, Linux in a virtual machine (package test/kernel).
package snapshot
