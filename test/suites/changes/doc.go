// Package changes compares the results of spdkgate_lvol_changes on a real target with the contents
// of snapshots.
//
// Random histories write to volumes; take, restore and delete snapshots; inflate, decouple and
// resize volumes; and kill the target. Meanwhile, another client reads changes. For each pair of a
// snapshot and its base, the test copies the reported clusters from the snapshot to the base, and
// compares the two. spdk-proxy runs as a separate process. The lvstore is on a file (AIO, io_uring)
// or on an NVMe namespace of a second target. -histories and -steps determine the number of
// operations, and -seed determines the random choices.
//
// Another test runs all of these operations, readers, and kills of the target concurrently, for the
// time given by -beside. The target is started with the configuration that the proxy has saved.
//
// Other tests kill the target during operations, and make calls that the histories do not make.
//
// SPDK_TGT=/path/to/spdk_tgt names the target program; without it, the tests are skipped.
// SPDK_TGT_ARGS adds arguments. SPDK_TGT_FAR="PROGRAM ARGUMENTS" names the program that exports the
// NVMe namespaces. SPDK_TGT_OTHER="PROGRAM ARGUMENTS" names a program of another release, for the
// test that restarts the target with another release. With SPDK_TGT_YIELD=1, targets that have
// nothing to do sleep for 50 µs instead of polling. Set this variable if two targets share a core,
// or if the machine is busy.
package changes
