// Package move copies a volume that no node uses to another lvstore or target, verifies the copy,
// and keeps everybody from the original until the copy has taken its place.
//
// It works from the machine it runs on, which attaches both volumes: so it moves volumes between
// targets that do not reach each other, of different releases and transports, with all that they
// share with snapshots and other volumes.
//
// Nothing is stored but on the volumes themselves. Until the copy is complete and verified, its
// first 4 KiB hold a mark (mark.go), so that an interrupted copy never passes for a complete one.
// The original is exported to a node of the move's own (NodeOf) from the beginning until it is
// deleted or given back, so that no other node can attach it.
//
// It may not know targets, SPDK's RPC or how connectors work: it calls CSI's controller service and
// a connector.
package move
