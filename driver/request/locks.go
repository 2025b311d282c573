package request

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Locks keep calls on the same thing apart. They never wait: CSI expects the second call to be answered with ABORTED, and
// repeats it. DESIGN.md, "The driver's locks", lists these and all other locks. A call claims:
//
//	CreateVolume      the name, and the id before it is answered (it may be being deleted)
//	  from a snapshot   the snapshot's id, shared: many volumes are restored at a time, but not while it is being deleted
//	  from a volume     that volume's id
//	CreateSnapshot    the name, and the volume's id
//	all others        the id
type Locks struct {
	mu   sync.Mutex
	held map[string]int // number of holders; -1: one that does not share
}

// NewLocks returns locks that are free.
func NewLocks() *Locks { return &Locks{held: map[string]int{}} }

// A Claim is a set of locks, taken one after the other and freed together.
type Claim struct {
	locks *Locks
	free  []func()
}

// Claim returns a claim that holds nothing yet.
func (l *Locks) Claim() *Claim { return &Claim{locks: l} }

// Take claims what for this call alone; an error of kind [ErrInFlight] if another call holds it.
func (c *Claim) Take(what string) error { return c.add(what, false) }

// Share claims what beside other calls that share it; an error of kind [ErrInFlight] if one holds it alone.
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

// Release frees all that the claim holds.
func (c *Claim) Release() {
	c.locks.mu.Lock()
	defer c.locks.mu.Unlock()
	for _, free := range c.free {
		free()
	}
	c.free = nil
}

// Held lists what claims hold.
func (l *Locks) Held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.held))
}
