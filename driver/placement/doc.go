// Package placement chooses the lvstores of volumes: which ones a class allows, in which order they are tried for a new
// volume, and how much still fits into them.
//
// It decides on values alone and makes nothing: what is on the targets was asked before, and what it chooses is made by
// others. It may not know SPDK's RPC, a volume's life, or CSI.
package placement
