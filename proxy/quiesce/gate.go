package quiesce

import (
	"context"
	"sync"
)

// A gate is a set of read-write locks, one for each object name: calls that change an object
// share its lock, operations that need it unchanged lock it exclusively. The names of one call
// or operation are locked all at once.
type gate struct {
	mu      sync.Mutex
	locked  map[string]int // number of calls that share the lock, or exclusive
	changed chan struct{}  // closed when a lock is released; nil: nothing waits
}

const exclusive = -1

// share locks names for a call. The error is that of ctx.
func (g *gate) share(ctx context.Context, names []string) (release func(), err error) {
	return g.lock(ctx, names, func(n int) bool { return n >= 0 }, 1)
}

// lockExclusively locks names for an operation. The error is that of ctx.
func (g *gate) lockExclusively(ctx context.Context, names []string) (release func(), err error) {
	return g.lock(ctx, names, unlocked, exclusive)
}

func unlocked(n int) bool { return n == 0 }

func (g *gate) lock(ctx context.Context, names []string, free func(int) bool, by int) (func(), error) {
	names = distinct(names)
	for {
		changed, ok := g.tryLock(names, free, by)
		if ok {
			return func() { g.release(names, by) }, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *gate) tryLock(names []string, free func(int) bool, by int) (changed <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if !free(g.locked[name]) {
			if g.changed == nil {
				g.changed = make(chan struct{})
			}
			return g.changed, false
		}
	}
	if g.locked == nil {
		g.locked = map[string]int{}
	}
	for _, name := range names {
		g.locked[name] += by
	}
	return nil, true
}

func (g *gate) release(names []string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
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
