// Package restart tests the proxy with real targets that end and restart. spdk_tgt -c loads the
// configuration saved by the proxy, and the target must have the same state as before.
//
// SPDK_TGT=/path/to/spdk_tgt names the program. If SPDK_TGT is not set, most tests are skipped,
// because spdk_tgt would use a processor core and 1 GiB of memory;
// TestObjectsSurviveTargetDeathInEachOperation and TestRandomOperationsSurviveTargetDeaths then use
// a simulated target. SPDK_TGT_ARGS adds arguments.
package restart
