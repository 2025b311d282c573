// Package spdktest is a simulated spdk_tgt on a real UNIX socket, for tests, the demo
// and spdk-sim; no other package may import it.
//
// It has SPDK's manners on the wire (concatenated values, replies in the order
// of completion, connections closed on what does not parse or fit), SPDK's
// methods for one release, by the schema, and SPDK's behaviour behind them:
// lvstores and logical volumes, NVMe-oF and iSCSI objects, keys, limits.
// Whatever it answers, a real target was seen to answer; package conformance
// holds both to the same assertions.
//
// With a data folder logical volumes are sparse files, so that data is real:
// snapshots and clones hold the bytes. Which clusters are allocated is a matter
// of book-keeping, not of what the files hold, for nobody tells the simulation
// of a write. The folder is laid out for the loop connector: see layout.go.
//
// It may not know the proxy, the driver, or who calls it.
package spdktest
