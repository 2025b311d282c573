// Package changes compares what spdkgate_lvol_changes reports on a real target with the content of
// snapshots.
//
// SPDK_TGT=/path/to/spdk_tgt names the target program; without it, these tests are skipped.
// SPDK_TGT_ARGS adds arguments. Random histories write to volumes, take, restore and delete
// snapshots, inflate, decouple and resize volumes, and kill the target, while another client reads
// changes. For each pair of snapshots, the base with the reported clusters of the other must equal
// the other. spdk-proxy runs as its own process, and the lvstore is on a file (AIO, io_uring) or on
// an NVMe namespace of a second target. -histories, -steps and -seed choose how much is done.
package changes
