package quiesce

import (
	"context"
	"sync"
)

// A gate is a set of read-write locks, one for each object name. Calls that change an object share
// its lock; operations that need it unchanged lock it exclusively. All names of one call or
// operation are locked at once.
type gate struct {
	mu      sync.Mutex
	locked  map[string]int // number of calls that share the lock, or exclusive
	changed chan struct{}  // closed when a lock is released; nil if nothing waits
}

const (
	exclusive = -1
	shared    = 1
)

// A lockSet lists object names to lock, with exclusive or shared for each.
type lockSet map[string]int

// add adds names. A name locked exclusively stays so.
func (l lockSet) add(by int, names ...string) {
	for _, name := range names {
		if name != "" && l[name] != exclusive {
			l[name] = by
		}
	}
}

// cover reports whether l locks each name of other, at least as strictly.
func (l lockSet) cover(other lockSet) bool {
	for name, by := range other {
		if has := l[name]; has == 0 || by == exclusive && has != exclusive {
			return false
		}
	}
	return true
}

func locksOf(by int, names []string) lockSet {
	l := lockSet{}
	l.add(by, names...)
	return l
}

// lock waits for all locks in l, and acquires them at once. The error is ctx's.
func (g *gate) lock(ctx context.Context, l lockSet) (release func(), err error) {
	for {
		changed, ok := g.tryLock(l)
		if ok {
			return func() { g.release(l) }, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *gate) tryLock(l lockSet) (changed <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, by := range l {
		if has := g.locked[name]; has == exclusive || has != 0 && by == exclusive {
			if g.changed == nil {
				g.changed = make(chan struct{})
			}
			return g.changed, false
		}
	}
	if g.locked == nil {
		g.locked = map[string]int{}
	}
	for name, by := range l {
		g.locked[name] += by
	}
	return nil, true
}

func (g *gate) release(l lockSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, by := range l {
		if g.locked[name] -= by; g.locked[name] == 0 {
			delete(g.locked, name)
		}
	}
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func distinct(names []string) (list []string) {
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}
