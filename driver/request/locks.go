package request

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Locks allow one call at a time on each object. A call never waits for a lock: CSI expects the
// second call to fail with ABORTED, and callers retry it. DESIGN.md, "Order in the driver", lists
// these and all other locks. Calls claim:
//
//	CreateVolume      the name; before it responds, also the new volume's id (another call may be deleting that volume)
//	  from a snapshot   also the snapshot's id, shared: it may be restored to several volumes at once, but not deleted
//	  from a volume     also the source volume's id
//	CreateSnapshot    the name and the volume's id
//	all others        the id
type Locks struct {
	mu   sync.Mutex
	held map[string]int // number of shared locks; -1 for an exclusive lock
}

// NewLocks returns Locks in which nothing is locked.
func NewLocks() *Locks { return &Locks{held: map[string]int{}} }

// A Claim is a set of locks. A call acquires the locks one at a time and releases them together.
type Claim struct {
	locks *Locks
	free  []func()
}

// Claim returns a claim without locks.
func (l *Locks) Claim() *Claim { return &Claim{locks: l} }

// Take acquires an exclusive lock on key. It fails with [ErrInFlight] if another call holds a lock
// on key.
func (c *Claim) Take(key string) error { return c.add(key, false) }

// Share acquires a shared lock on key. It fails with [ErrInFlight] if another call holds an
// exclusive lock on key.
func (c *Claim) Share(key string) error { return c.add(key, true) }

func (c *Claim) add(key string, shared bool) error {
	l := c.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.held[key]; {
	case n == 0 && !shared:
		l.held[key] = -1
	case n >= 0 && shared:
		l.held[key]++
	default:
		return fmt.Errorf("%w on %s: try again", ErrInFlight, key)
	}
	c.free = append(c.free, func() {
		if l.held[key] <= 1 {
			delete(l.held, key)
		} else {
			l.held[key]--
		}
	})
	return nil
}

// Release releases all locks of the claim.
func (c *Claim) Release() {
	c.locks.mu.Lock()
	defer c.locks.mu.Unlock()
	for _, free := range c.free {
		free()
	}
	c.free = nil
}

// Held returns the locked keys, sorted.
func (l *Locks) Held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.held))
}
