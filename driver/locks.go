package driver

import (
	"fmt"
	"sync"
)

// locks keep calls on the same thing apart. Nobody waits: CSI wants such calls answered with ABORTED and repeated.
// What is claimed:
//
//	CreateVolume      its name, and its id before it is answered (so not while it is being deleted)
//	  from a snapshot   the snapshot's id, shared: many may be restored at a time, but not while it is being deleted
//	  from a volume     that volume's id
//	CreateSnapshot    its name, and the volume's id
//	all others        the id
type locks struct {
	mu   sync.Mutex
	held map[string]int // holders; -1 is one that shares with nobody
}

func newLocks() *locks { return &locks{held: map[string]int{}} }

// A claim is a set of locks, taken one after the other and freed together.
type claim struct {
	locks *locks
	free  []func()
}

func (l *locks) claim() *claim { return &claim{locks: l} }

// take claims what for its holder alone; an error of kind errInFlight if it is taken.
func (c *claim) take(what string) error { return c.add(what, false) }

// share claims what beside others that share it.
func (c *claim) share(what string) error { return c.add(what, true) }

func (c *claim) add(what string, shared bool) error {
	l := c.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.held[what]; {
	case n == 0 && !shared:
		l.held[what] = -1
	case n >= 0 && shared:
		l.held[what]++
	default:
		return fmt.Errorf("%w on %s: try again", errInFlight, what)
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

func (c *claim) release() {
	c.locks.mu.Lock()
	defer c.locks.mu.Unlock()
	for _, free := range c.free {
		free()
	}
	c.free = nil
}
