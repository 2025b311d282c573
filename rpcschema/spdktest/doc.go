// Package spdktest is a simulated spdk_tgt on a real UNIX socket, for tests, the demo and spdk-sim;
// no other package may import it.
//
// It simulates SPDK's behaviour on the wire: concatenated values, responses in the order of
// completion, and connections closed after requests that cannot be parsed or exceed a limit. It has
// the methods of one SPDK release, from the schema, and simulates their effects on lvstores and
// logical volumes, NVMe-oF and iSCSI objects, keys and limits. It responds only as a real target
// was observed to respond; package conformance checks both with the same assertions.
//
// With a data directory, logical volumes are sparse files with real data: snapshots and clones
// contain the bytes. The simulation keeps its own list of allocated clusters, independent of the
// files, because it does not notice writes to them. The directory is laid out for the loop
// connector: see layout.go.
//
// The package must not know the proxy, the driver, or who calls it.
package spdktest
