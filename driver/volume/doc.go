// Package volume manages volumes on one SPDK target: it creates, clones, grows, snapshots and
// deletes logical volumes with typed calls. Package export exports them. Before package volume
// deletes or freezes a volume, it asks package export whether the volume is in use.
//
// Its only state is which lvstores it has seen (presence.go). Every operation reads the target's
// state, does the missing steps, and reads the state again. The same or another process can
// therefore repeat it after a crash or a lost reply at any point. After a failed call, reading back
// shows what the call did (package readback). Package volume never depends on the texts of SPDK's
// errors.
//
// It must not know gRPC, CSI's messages, which target was chosen, or how nodes attach exports.
package volume
