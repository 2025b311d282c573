package quiesce

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A gate is a set of read-write locks, one for each object name. Calls that change an object share
// its lock; operations that need the object unchanged lock it exclusively. All names of a call or
// operation are locked together. Calls that share a lock cannot keep an operation waiting forever:
// once an operation is waiting, no further call may share the lock, and long-running readers are
// interrupted.
type gate struct {
	mu     sync.Mutex
	locked map[string]int // number of calls that share the lock, or the constant exclusive
	queue  []*waiter      // in the order in which they began to wait

	readers map[*reader]bool
}

// A reader is a call that shares locks and releases them soon after interrupt is called.
type reader struct {
	locks     lockSet
	interrupt func()
}

// interruptAfter is how long an operation waits for readers before it interrupts them. Most reads
// are shorter.
const interruptAfter = lockTimeout / 4

// A waiter waits for its locks. granted is closed when it has acquired them.
type waiter struct {
	locks   lockSet
	granted chan struct{}
}

const (
	exclusive = -1
	shared    = 1
)

// A lockSet contains the names of objects to lock, each with the kind of lock: exclusive or shared.
type lockSet map[string]int

// add adds names to l. A name that is already exclusive stays exclusive.
func (l lockSet) add(by int, names ...string) {
	for _, name := range names {
		if name != "" && l[name] != exclusive {
			l[name] = by
		}
	}
}

// cover reports whether l locks every name in other at least as strictly.
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

// lock waits until all locks in l are free, and then acquires them together. After waiting for
// interruptAfter, it interrupts readers that share a lock that l needs exclusively. The error is
// ctx's.
func (g *gate) lock(ctx context.Context, l lockSet) (release func(), err error) {
	w := g.lockOrWait(l)
	release = func() { g.release(l) }
	select {
	case <-w.granted: // most locks are free
		return release, nil
	default:
	}
	patience := time.NewTicker(interruptAfter)
	defer patience.Stop()
	for waits := true; waits; {
		select {
		case <-w.granted:
			return release, nil
		case <-patience.C:
			g.interrupt(l)
		case <-ctx.Done():
			waits = false
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, w)
	if i < 0 { // w has just acquired the locks
		return release, nil
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	g.grant() // calls behind w in the queue may have waited only because of w
	return nil, ctx.Err()
}

// read adds a reader that shares the locks in l. The caller must remove the reader before it
// releases these locks.
func (g *gate) read(l lockSet, interrupt func()) (remove func()) {
	r := &reader{l, interrupt}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.readers == nil {
		g.readers = map[*reader]bool{}
	}
	g.readers[r] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.readers, r)
	}
}

// interrupt interrupts the readers that share a lock that l needs exclusively.
func (g *gate) interrupt(l lockSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.readers {
		for name := range r.locks {
			if l[name] == exclusive {
				r.interrupt()
				break
			}
		}
	}
}

func (g *gate) lockOrWait(l lockSet) *waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := &waiter{l, make(chan struct{})}
	g.queue = append(g.queue, w)
	g.grant()
	return w
}

// tryLock acquires all locks in l, provided that it need not wait.
func (g *gate) tryLock(l lockSet) (ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.free(l, g.queue) {
		return false
	}
	g.take(l)
	return true
}

func (g *gate) release(l lockSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, by := range l {
		if g.locked[name] -= by; g.locked[name] == 0 {
			delete(g.locked, name)
		}
	}
	g.grant()
}

// grant acquires free locks for waiters, in the order of the queue.
func (g *gate) grant() {
	var left []*waiter
	for _, w := range g.queue {
		if !g.free(w.locks, left) {
			left = append(left, w)
			continue
		}
		g.take(w.locks)
		close(w.granted)
	}
	g.queue = left
}

// free reports whether all locks in l can be acquired now. before contains the earlier waiters. A
// shared lock is not free if an earlier waiter needs it exclusively.
func (g *gate) free(l lockSet, before []*waiter) bool {
	for name, by := range l {
		has := g.locked[name]
		if has == exclusive || has != 0 && by == exclusive {
			return false
		}
		if has != 0 && slices.ContainsFunc(before, func(w *waiter) bool { return w.locks[name] == exclusive }) {
			return false
		}
	}
	return true
}

func (g *gate) take(l lockSet) {
	if g.locked == nil {
		g.locked = map[string]int{}
	}
	for name, by := range l {
		g.locked[name] += by
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
