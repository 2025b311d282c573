package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/spdkgate/spdkgate/driver/class"
)

// A Store is an lvstore of a target, as that answered.
type Store struct {
	Target, Name          string
	FreeBytes, TotalBytes int64
	// SmallestBytes is the size of the smallest volume that it makes.
	SmallestBytes int64
}

// Targets returns those of the configured targets on which the class allows volumes. Errors are of kind
// [class.ErrParameter].
func Targets(configured []string, c class.Class) ([]string, error) {
	if c.Target == "" {
		return configured, nil
	}
	if !slices.Contains(configured, c.Target) {
		return nil, fmt.Errorf("%w: target is %q, which config.json does not have", class.ErrParameter, c.Target)
	}
	return []string{c.Target}, nil
}

// Stores returns those of the stores in which the class allows volumes: at least one. Errors are of kind
// [class.ErrParameter].
func Stores(all []Store, c class.Class) ([]Store, error) {
	var allowed []Store
	for _, s := range all {
		if c.Store == "" || c.Store == s.Name {
			allowed = append(allowed, s)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("%w: no target has an lvstore %q that the driver may use", class.ErrParameter, c.Store)
	}
	return allowed, nil
}

// Order returns the stores in the order in which they are tried for a new volume. Each store draws a number from the
// volume's name and its own, weighted by its free space (rendezvous hashing): volumes spread in proportion to free space,
// even thin ones, which take none when they are made, and a repeated call tries the stores in the same order.
func Order(stores []Store, volume string) []Store {
	score := func(s Store) float64 {
		sum := sha256.Sum256([]byte(s.Target + "\x00" + s.Name + "\x00" + volume))
		u := (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53) // in (0, 1)
		return float64(s.FreeBytes) / -math.Log(u)
	}
	return slices.SortedFunc(slices.Values(stores), func(a, b Store) int {
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Name, b.Name))
	})
}

// CheckCopy refuses a class that a copy of a volume or snapshot on the target cannot have: copies are thin, and lie in the
// lvstore of their source. storeOfSource is asked for that lvstore only if the class names one. Errors are its own, or of
// kind [class.ErrParameter].
func CheckCopy(c class.Class, target string, storeOfSource func() (string, error)) error {
	switch {
	case c.Thick:
		return fmt.Errorf("%w: thin is false, and SPDK makes clones and restored volumes thin: use a StorageClass with thin: true", class.ErrParameter)
	case c.Target != "" && c.Target != target:
		return fmt.Errorf("%w: target is %q, and the source lies on target %q, where its clones stay", class.ErrParameter, c.Target, target)
	case c.Store == "":
		return nil
	}
	store, err := storeOfSource()
	if err == nil && store != c.Store {
		err = fmt.Errorf("%w: lvstore is %q, and the source lies in lvstore %q, where its clones stay", class.ErrParameter, c.Store, store)
	}
	return err
}

// A Capacity is what can still be made.
type Capacity struct {
	// FreeBytes is the free space of all stores; MaxBytes the size of the largest volume that can be made now, MinBytes of
	// the smallest.
	FreeBytes, MaxBytes, MinBytes int64
}

// CapacityOf returns what can be made in the stores by a class.
func CapacityOf(stores []Store, c class.Class) Capacity {
	var sum Capacity
	for _, s := range stores {
		sum.FreeBytes += s.FreeBytes
		if s.FreeBytes == 0 {
			continue
		}
		largest := s.FreeBytes
		if !c.Thick {
			largest = s.TotalBytes // a thin volume may be larger than what is free
		}
		sum.MaxBytes = max(sum.MaxBytes, largest)
		if sum.MinBytes == 0 || s.SmallestBytes < sum.MinBytes {
			sum.MinBytes = s.SmallestBytes
		}
	}
	return sum
}
