// Package figures reads a target's statistics: its lvstores, volumes and other bdevs with their I/O
// and its latencies, NVMe-oF and iSCSI, reactors, threads and buffers. It returns values for
// metrics, warnings and people. Package targetmetrics writes the values as metrics, and package
// terminal displays them. The metrics in package metrics are the proxy's own, and do not include
// these values.
//
// A [Reader] limits the load on the target: it makes one call at a time, and waits at least 100 t
// before it repeats a call that took time t. [Shared] shares the result of one read among any
// number of callers.
//
// A reading is the set of figures that one call of [Reader.Read] returns.
//
// The package must not depend on who requests figures, how the target is reached, or how figures
// are displayed.
package figures
