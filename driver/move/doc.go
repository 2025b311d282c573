// Package move copies a volume that no node uses to another lvstore or target, and verifies the
// copy. No node can attach the original until the copy has replaced it.
//
// The machine running the move attaches both volumes. So the targets need not reach each other, and
// may differ in release and transport. The copy includes the data that a volume shares with
// snapshots and other volumes.
//
// All state is stored on the volumes themselves. Until the copy is complete and verified, its first
// 4 KiB hold a mark (mark.go), so that an interrupted copy never passes for a complete one. The
// original is exported to the move's own node (NodeOf) from the beginning until it is deleted or
// given back, so that no other node can attach it.
//
// It does not depend on targets, SPDK's RPC or the implementation of connectors: it calls CSI's
// controller service and a connector. Begin with Mover.Copy (move.go).
package move
