package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/class"
)

// A Store describes an lvstore on a target.
type Store struct {
	Target, Name          string
	FreeBytes, TotalBytes int64
	// RoomBytes is the size of the largest volume that can be created now. It depends on the class:
	// a thick volume needs free clusters, whereas a thin volume is limited only by thinOvercommit.
	RoomBytes int64
	// SmallestBytes is the size of the smallest volume that can be created.
	SmallestBytes int64
}

// Stores returns the stores that the class allows. If there are none, it fails with
// [class.ErrParameter].
func Stores(all []Store, c class.Class) ([]Store, error) {
	var allowed []Store
	for _, s := range all {
		if len(c.Stores) == 0 || slices.Contains(c.Stores, s.Name) {
			allowed = append(allowed, s)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("%w: no target that may hold the volume has an lvstore named %s that the driver may use", class.ErrParameter, strings.Join(c.Stores, " or "))
	}
	return allowed, nil
}

// Order returns the stores in the order that they are tried for a new volume: by the rank of their
// target (see [Accessibility.Rank]), then by the strategy.
func Order(stores []Store, volume string, strategy class.Strategy, rank func(target string) int) []Store {
	before := func(a, b Store) int { return cmp.Compare(spread(b, volume), spread(a, volume)) }
	switch strategy {
	case class.MostFree:
		before = func(a, b Store) int { return cmp.Compare(b.RoomBytes, a.RoomBytes) }
	case class.BinPack:
		before = func(a, b Store) int { return cmp.Compare(a.RoomBytes, b.RoomBytes) }
	}
	return slices.SortedFunc(slices.Values(stores), func(a, b Store) int {
		return cmp.Or(cmp.Compare(rank(a.Target), rank(b.Target)), before(a, b), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Name, b.Name))
	})
}

// spread returns a pseudorandom number that depends on the names of the store and the volume,
// weighted by the store's free space. This distributes volumes in proportion to free space,
// including thin volumes, which use no space when they are created.
func spread(s Store, volume string) float64 {
	return float64(s.FreeBytes) / -math.Log(draw(s.Target, s.Name, volume))
}

// draw returns a pseudorandom number in the interval (0, 1) that depends only on the words.
func draw(words ...string) float64 {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53)
}

// CheckCopy returns an error if a copy of a volume or snapshot on the target cannot satisfy the
// class. Copies are thin, and are in the lvstore of their source. storeOfSource returns that
// lvstore; CheckCopy calls it only if the class names lvstores, and returns its error. All other
// errors wrap [class.ErrParameter].
func CheckCopy(c class.Class, target Target, storeOfSource func() (string, error)) error {
	switch {
	case c.Thick:
		return fmt.Errorf("%w: thin is false, but SPDK makes clones and restored volumes thin: use a StorageClass with thin: true", class.ErrParameter)
	case len(c.Targets) > 0 && !slices.Contains(c.Targets, target.Name):
		return fmt.Errorf("%w: target is %q, but the source is on target %q; a copy must be on the same target as its source", class.ErrParameter, strings.Join(c.Targets, ","), target.Name)
	case !c.Allows(target.Name, target.Labels):
		return fmt.Errorf("%w: targetLabels are %q, but the source is on target %q, which does not have them; a copy must be on the same target as its source", class.ErrParameter, segments(c.TargetLabels), target.Name)
	case len(c.Stores) == 0:
		return nil
	}
	store, err := storeOfSource()
	if err == nil && !slices.Contains(c.Stores, store) {
		err = fmt.Errorf("%w: lvstore is %q, but the source is in lvstore %q, and a copy is made in the lvstore of its source", class.ErrParameter, strings.Join(c.Stores, ","), store)
	}
	return err
}

// A Capacity describes the volumes that can be created now.
type Capacity struct {
	// Bytes is the total size of volumes. MaxBytes is the size of the largest volume, and MinBytes
	// is the size of the smallest.
	Bytes, MaxBytes, MinBytes int64
}

// CapacityOf returns the capacity of the stores.
func CapacityOf(stores []Store) Capacity {
	var sum Capacity
	for _, s := range stores {
		if s.RoomBytes < s.SmallestBytes {
			continue // no room even for the smallest volume
		}
		sum.Bytes += s.RoomBytes
		sum.MaxBytes = max(sum.MaxBytes, s.RoomBytes)
		if sum.MinBytes == 0 || s.SmallestBytes < sum.MinBytes {
			sum.MinBytes = s.SmallestBytes
		}
	}
	return sum
}

// Pair returns the first two stores, in the given order, that are on different targets and within
// reach of a single node. If spread is not empty, the targets have different values of this label.
// targets contains the stores' targets by name.
func Pair(stores []Store, targets map[string]Target, spread string) (first, second Store, ok bool) {
	for i, a := range stores {
		for _, b := range stores[i+1:] {
			if a.Target != b.Target && targets[a.Target].pairs(targets[b.Target], spread) {
				return a, b, true
			}
		}
	}
	return Store{}, Store{}, false
}

// PairCapacity returns the capacity for volumes with a replica on each of two targets that a single
// node can reach. Each replica is larger than its volume by head bytes. The target with less room
// limits the capacity of a pair. PairCapacity returns the capacity of the best pair. targets and
// spread are as for [Pair].
func PairCapacity(stores []Store, targets map[string]Target, spread string, head int64) Capacity {
	byTarget := map[string][]Store{}
	for _, s := range stores {
		s.RoomBytes -= head
		s.SmallestBytes -= head % max(s.SmallestBytes, 1) // the head is in the first clusters of the replica
		byTarget[s.Target] = append(byTarget[s.Target], s)
	}
	var best Capacity
	for a, first := range byTarget {
		for b, second := range byTarget {
			if a >= b || !targets[a].pairs(targets[b], spread) {
				continue
			}
			x, y := CapacityOf(first), CapacityOf(second)
			if x.Bytes == 0 || y.Bytes == 0 {
				continue
			}
			best.Bytes = max(best.Bytes, min(x.Bytes, y.Bytes))
			best.MaxBytes = max(best.MaxBytes, min(x.MaxBytes, y.MaxBytes))
			if least := min(x.MinBytes, y.MinBytes); best.MinBytes == 0 || least < best.MinBytes {
				best.MinBytes = least
			}
		}
	}
	return best
}

// pairs reports whether one node can have the topologies of both targets, and whether the values of
// the label spread differ, unless spread is empty.
func (t Target) pairs(other Target, spread string) bool {
	if spread != "" && t.Labels[spread] == other.Labels[spread] {
		return false
	}
	for key, value := range t.Topology {
		if v, ok := other.Topology[key]; ok && v != value {
			return false
		}
	}
	return true
}
