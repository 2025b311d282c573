// Package spdktest implements a simulated spdk_tgt on a real UNIX socket, for tests, the demo and
// spdk-sim. No other package may import it.
//
// The simulated target behaves like SPDK on the wire: it reads concatenated values, responds in the
// order of completion, and closes connections after requests that cannot be parsed or exceed a
// limit. It supports the methods that one SPDK release has according to the schema, and simulates
// their effects on lvstores, logical volumes, NVMe-oF and iSCSI objects, keys and limits. Its
// responses are those observed on real targets; package conformance checks both kinds of target
// with the same assertions.
//
// With a data directory, logical volumes are sparse files with real data, and so are snapshots and
// clones. The simulation keeps its own list of allocated clusters, because it does not notice
// writes to the files. The loop connector uses the same directory, which layout.go describes.
//
// The package must not depend on the proxy, the driver, or the caller.
package spdktest
