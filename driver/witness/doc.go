// Package witness stores the witness of a replicated volume: the ReplicatedVolume object in the
// Kubernetes API that records the volume's replicas, its writer, and its in-sync set
// (docs/design/replication.md). The controller and the node that uses the volume change it.
//
// Every change is a compare-and-swap with resourceVersion, based on an object that was read for
// this change. If the outcome of a write is unknown, the package reads the object again. It rejects
// an object that this version of the driver does not understand completely, or that is older than
// an object that this process has already read.
//
// Package replica decides which changes are permitted. Package witness must not depend on CSI
// services, RPCs, devices or mirrors.
package witness
