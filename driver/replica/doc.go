// Package replica makes the decisions for a volume with two replicas: given the states of both
// replicas and the witness, it decides what a node does and how the witness changes.
//
// A replica is one lvol of the volume. The in-sync set is the set of replicas that contain every
// acknowledged write. The witness is the Kubernetes API object that records this set, and a
// superblock is the record on each replica. The log marks the regions of the volume where a missing
// replica may differ. [Decide] makes the decision for staging, the methods of [Witness] are its
// state transitions, and [Readd] decides how a replica returns to a running mirror.
//
// All functions are pure. The tests run these functions in a model that explores every state to
// which failures can lead (docs/design/replication.md). Package replica must not depend on RPCs,
// Kubernetes, commands, files or devices: callers read the inputs, and carry out the decisions.
package replica
