// Package placement chooses the lvstores of volumes. It determines which lvstores a class allows,
// in which order they are tried for a new volume, and how much space they have left.
//
// Package placement works only on values: callers first read the state of the targets, and create
// the volumes afterwards. Package placement must not depend on SPDK's RPCs, the lifecycle of
// volumes, or CSI.
package placement
