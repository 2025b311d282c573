// Package restart holds the proxy against real targets that end and start again:
// what it has saved is loaded by spdk_tgt -c, and all is as before.
//
// SPDK_TGT=/path/to/spdk_tgt names the program; without it these tests are skipped,
// as it takes a processor core, and a GiB of memory. SPDK_TGT_ARGS adds arguments.
package restart
