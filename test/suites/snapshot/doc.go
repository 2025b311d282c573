// Package snapshot takes many snapshots of volumes on real targets while the volumes are being
// written to, and then verifies the lvstore, the snapshots and the volumes.
//
// SPDK_TGT=/path/to/spdk_tgt names the target program, which needs a processor core and 1 GiB of
// memory. If SPDK_TGT is not set, these tests are skipped. SPDK_TGT_ARGS adds arguments. If these
// arguments include -m, the tests with two targets also need the argument --disable-cpumask-locks,
// because both targets would claim the same cores. The driver's CreateSnapshot runs in the test
// process and calls an spdk-proxy that runs in its own process. The writer is a small NVMe/TCP host
// (package initiator), or, with -tags kernel, Linux in a virtual machine (package
// test/suites/kernel).
package snapshot
