package replica

import "math/bits"

// MaxReplicas is the maximum number of replicas in a witness: two, plus a third while a replica is
// being replaced.
const MaxReplicas = 3

// HeadBytes is the size of the head: the part of a replica before the volume's data. The head
// contains the superblock and the log.
const HeadBytes = 4 << 20

// An ID is the number of a replica in its witness, and is less than MaxReplicas. A number can be
// reused once the witness no longer lists its replica.
type ID uint8

// A Set is a set of replicas of one volume.
type Set uint8

// SetOf returns the set of these replicas.
func SetOf(ids ...ID) Set {
	var s Set
	for _, id := range ids {
		s |= 1 << id
	}
	return s
}

// Has reports whether id is in the set.
func (s Set) Has(id ID) bool { return s&SetOf(id) != 0 }

// Len returns the number of replicas in the set.
func (s Set) Len() int { return bits.OnesCount8(uint8(s)) }

// Contains reports whether all replicas of sub are in the set.
func (s Set) Contains(sub Set) bool { return sub&^s == 0 }

// IDs returns the replicas of the set in ascending order.
func (s Set) IDs() []ID {
	ids := make([]ID, 0, s.Len())
	for id := range ID(MaxReplicas) {
		if s.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
