// Package spdktest implements a simulated spdk_tgt on a real UNIX socket, for tests, the demo and
// spdk-sim. No other package may import it.
//
// It simulates SPDK's behaviour on the wire: concatenated values, responses in the order of
// completion, and connections that are closed after requests that cannot be parsed or exceed a
// limit. It supports the methods of one SPDK release, according to the schema, and simulates their
// effects on lvstores, logical volumes, NVMe-oF and iSCSI objects, keys and limits. Its responses
// are those observed on real targets; package conformance checks both with the same assertions.
//
// With a data directory, logical volumes are sparse files with real data, which snapshots and
// clones contain too. The simulation keeps its own list of allocated clusters, independent of the
// files, because it does not notice writes to them. layout.go describes the directory, which the
// loop connector also uses.
//
// The package does not depend on the proxy, the driver, or who calls it.
package spdktest
