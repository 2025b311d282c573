package request

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Locks allow one call at a time on each object. A call never waits for a lock: CSI expects the
// second call to be answered with ABORTED, and repeats it. DESIGN.md, "Order in the driver", lists
// these and all other locks. A call claims:
//
//	CreateVolume      the name, and the id before it is answered (another call may be deleting the volume)
//	  from a snapshot   the snapshot's id, shared: several volumes can be restored at once, but not during its deletion
//	  from a volume     that volume's id
//	CreateSnapshot    the name, and the volume's id
//	all others        the id
type Locks struct {
	mu   sync.Mutex
	held map[string]int // number of shared holders; -1 for an exclusive one
}

// NewLocks returns locks, none of which is held.
func NewLocks() *Locks { return &Locks{held: map[string]int{}} }

// A Claim is a set of locks that a call takes one after the other and releases together.
type Claim struct {
	locks *Locks
	free  []func()
}

// Claim returns a claim that holds nothing yet.
func (l *Locks) Claim() *Claim { return &Claim{locks: l} }

// Take locks what exclusively. It fails with [ErrInFlight] if another call holds it.
func (c *Claim) Take(what string) error { return c.add(what, false) }

// Share locks what together with other calls that share it. It fails with [ErrInFlight] if a call
// holds it exclusively.
func (c *Claim) Share(what string) error { return c.add(what, true) }

func (c *Claim) add(what string, shared bool) error {
	l := c.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.held[what]; {
	case n == 0 && !shared:
		l.held[what] = -1
	case n >= 0 && shared:
		l.held[what]++
	default:
		return fmt.Errorf("%w on %s: try again", ErrInFlight, what)
	}
	c.free = append(c.free, func() {
		if l.held[what] <= 1 {
			delete(l.held, what)
		} else {
			l.held[what]--
		}
	})
	return nil
}

// Release frees all locks of the claim.
func (c *Claim) Release() {
	c.locks.mu.Lock()
	defer c.locks.mu.Unlock()
	for _, free := range c.free {
		free()
	}
	c.free = nil
}

// Held lists what claims hold, sorted.
func (l *Locks) Held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.held))
}
