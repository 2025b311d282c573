// Package replica decides what happens to a volume with two replicas: what a node does with what it
// sees of both replicas and of the witness, and how the witness changes.
//
// A replica is one lvol of the volume. The in-sync set is the set of replicas that contain every
// acknowledged write. The witness is the object of Kubernetes' API that records it, and a
// superblock is the record on each replica. [Decide] is the decision of staging, the methods of
// [Witness] are its transitions, and [Readd] decides how a replica returns to a running mirror.
//
// All functions are pure. The tests explore every state that failures can lead to, with these
// functions in it (docs/design/replication.md). The driver does not use it yet. The package must
// not know RPCs, Kubernetes, commands, files or devices: callers read before, and act afterwards.
package replica
