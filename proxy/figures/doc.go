// Package figures reads what a target reports about itself: its lvstores, volumes and other bdevs
// with their I/O and its latencies, NVMe-oF and iSCSI, reactors, threads and buffers. It returns
// values, for metrics, for warnings and for people.
//
// A [Reader] bounds what this costs the target: it makes one call at a time, and repeats a call at
// the earliest after a hundred times as long as the call took. [Shared] serves any number of
// callers with one reading.
//
// The package may not know who asks, how the target is reached, or how the figures are shown.
package figures
