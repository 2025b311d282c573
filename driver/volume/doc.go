// Package volume manages volumes on one SPDK target: it creates, clones, grows, snapshots and
// deletes logical volumes with typed calls. Package export exports them; volume asks it whether a
// volume is in use before it deletes or freezes one.
//
// Its only state is which lvstores it has seen (presence.go). Every operation reads the target's
// state, does the missing steps, and reads the state again. So the same or another process can
// repeat it after a crash or a lost reply at any point. Reading back reports what a failed call did
// (package readback). The texts of SPDK's errors are never used.
//
// It must not know gRPC, CSI's messages, which target was chosen, or how nodes attach what is
// exported.
package volume
