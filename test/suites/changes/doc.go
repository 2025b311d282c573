// Package changes compares what spdkgate_lvol_changes reports on a real target with the contents of
// snapshots.
//
// SPDK_TGT=/path/to/spdk_tgt names the target program; without it, these tests are skipped.
// SPDK_TGT_ARGS adds arguments. Random histories write to volumes, take, restore and delete
// snapshots, inflate, decouple and resize volumes, and kill the target, while another client reads
// changes. For each pair of snapshots, the base must equal the other once the reported clusters are
// copied from that. spdk-proxy runs as its own process, and the lvstore is on a file (AIO,
// io_uring) or on an NVMe namespace of a second target. -histories and -steps set how much is done,
// and -seed sets the random choices.
package changes
