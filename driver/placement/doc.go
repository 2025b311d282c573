// Package placement chooses the lvstores of volumes: which ones a class allows, in which order they
// are tried for a new volume, and how much still fits into them.
//
// It decides on values alone: callers read the state of the targets before, and create the volumes
// afterwards. It must not know SPDK's RPC, volumes' lifecycle, or CSI.
package placement
