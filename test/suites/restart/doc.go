// Package restart tests the proxy with real targets that end and start again. spdk_tgt -c loads the
// configuration that the proxy saved, and the target must have the same state as before.
//
// SPDK_TGT=/path/to/spdk_tgt is the program. Without it, most tests are skipped, because spdk_tgt
// uses a processor core and a GiB of memory; TestTargetDiesInEachOperation then has a simulated
// target. SPDK_TGT_ARGS adds arguments.
package restart
