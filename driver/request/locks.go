package request

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Locks keep calls on the same thing apart. Nobody waits: CSI wants such calls answered with ABORTED and repeated.
// What is claimed:
//
//	CreateVolume      its name, and its id before it is answered (so not while it is being deleted)
//	  from a snapshot   the snapshot's id, shared: many may be restored at a time, but not while it is being deleted
//	  from a volume     that volume's id
//	CreateSnapshot    its name, and the volume's id
//	all others        the id
type Locks struct {
	mu   sync.Mutex
	held map[string]int // holders; -1 is one that shares with nobody
}

// NewLocks returns locks that nobody holds.
func NewLocks() *Locks { return &Locks{held: map[string]int{}} }

// A Claim is a set of locks, taken one after the other and freed together.
type Claim struct {
	locks *Locks
	free  []func()
}

// Claim returns a claim that holds nothing yet.
func (l *Locks) Claim() *Claim { return &Claim{locks: l} }

// Take claims what for its holder alone; an error of kind ErrInFlight if it is taken.
func (c *Claim) Take(what string) error { return c.add(what, false) }

// Share claims what beside others that share it.
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
