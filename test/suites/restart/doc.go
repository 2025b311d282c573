// Package restart tests the proxy with real targets that end and restart. spdk_tgt -c loads the
// configuration saved by the proxy, and the target must have the same state as before.
//
// SPDK_TGT=/path/to/spdk_tgt names the program. If it is not set, most tests are skipped, because
// spdk_tgt uses a processor core and a GiB of memory; TestTargetDiesInEachOperation then uses a
// simulated target. SPDK_TGT_ARGS adds arguments.
package restart
