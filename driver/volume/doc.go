// Package volume is the life of a volume on one SPDK target: creating, cloning, growing, snapshotting and deleting logical
// volumes by typed calls. How they are exported is package export's; volume asks it before it deletes or freezes one.
//
// It remembers only which lvstores were seen (presence.go). Every operation asks the target what is there, does the next
// missing step, and asks again, so that each may be repeated after a crash or a lost reply at any point, by the same process
// or another. What a failed call did is learned by reading back (package readback); SPDK's error texts decide nothing.
//
// It may not know gRPC, CSI's messages, which target was chosen, or how nodes attach what is exported.
package volume
