// Package figures reads a target's statistics: its lvstores, volumes and other bdevs with their I/O
// and its latencies, NVMe-oF and iSCSI, reactors, threads and buffers. It returns values for
// metrics, for warnings and for people. Package targetmetrics writes them as metrics, and package
// terminal shows them to people. Package metrics does not include them.
//
// A [Reader] limits the load on the target: it makes one call at a time, and after a call that took
// time t, it waits at least 100 t before it repeats that call. [Shared] shares the result of one
// read among any number of callers.
//
// A reading is the set of figures that one call of [Reader.Read] returns.
//
// The package must not depend on who requests figures, how the target is reached, or how they are
// shown.
package figures
