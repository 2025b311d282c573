// Package move copies a volume that no node uses to another lvstore or target, and verifies the
// copy. No node can attach the original until the copy has replaced it.
//
// The machine that runs the move attaches both volumes, so the targets do not need a connection to
// each other, and may use different releases and transports. The copy includes the data that a
// volume shares with snapshots and other volumes.
//
// Prepare copies a snapshot while nodes use the volume; Copy then copies only what has changed
// since (prepare.go, delta.go).
//
// All state is stored on the volumes themselves. Until the copy is complete and verified, its first
// 4 KiB contain a mark (mark.go), so that an interrupted copy is never mistaken for a complete one.
// From the start of the copy until Keep or DeleteOriginal, the original is exported to a node that
// exists only for the move (NodeOf), so that no other node can attach it. The name of this node
// contains the copy's UUID, so that DeleteOriginal accepts only the copy that the latest move has
// made.
//
// Package move must not depend on targets, SPDK's RPCs or the implementation of connectors: it
// calls the CSI controller service and a connector. Start reading at Mover.Copy (move.go).
package move
