// Package volume manages volumes on one SPDK target: it creates, clones, grows, snapshots and
// deletes logical volumes with typed calls. Package export makes the volumes available to hosts.
// Before package volume deletes or freezes a volume, it checks through package export that the
// volume is not in use.
//
// The package's only state is a record of the lvstores that it has seen (presence.go). Every
// operation reads the target's state, performs the missing steps, and reads the state again. Any
// process can therefore repeat an operation after a crash or a lost reply at any point. After a
// failed call, reading back shows what the call did (package readback). Package volume never
// depends on the texts of SPDK's errors.
//
// Package volume must not depend on gRPC, CSI messages, the choice of a target, or how nodes attach
// exports.
package volume
