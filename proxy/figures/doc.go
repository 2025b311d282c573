// Package figures reads what a target reports about itself: its lvstores, volumes and other bdevs
// with their I/O and its latencies, NVMe-oF and iSCSI, reactors, threads and buffers. It returns
// values, for metrics, for warnings and for people: package targetmetrics writes them as metrics,
// package terminal for people, and package metrics does not have them.
//
// A [Reader] bounds what this costs the target. It makes one call at a time. If a call took a time
// t, it waits at least 100 t before it repeats the call. [Shared] serves any number of callers with
// one reading.
//
// The package must not know who asks, how the target is reached, or how the figures are shown.
package figures
