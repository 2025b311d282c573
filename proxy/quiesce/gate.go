package quiesce

import (
	"context"
	"sync"
)

// A gate keeps calls that change an object apart from operations that need it
// unchanged. Names are taken all at once: shared by calls, alone by operations.
type gate struct {
	mu      sync.Mutex
	taken   map[string]int // how many share it; alone: -1
	changed chan struct{}  // closed when something is given back
}

const alone = -1

// share takes names for a call. The error is ctx's.
func (g *gate) share(ctx context.Context, names []string) (give func(), err error) {
	return g.take(ctx, names, func(n int) bool { return n >= 0 }, 1)
}

// own takes names for an operation. The error is ctx's.
func (g *gate) own(ctx context.Context, names []string) (give func(), err error) {
	return g.take(ctx, names, func(n int) bool { return n == 0 }, alone)
}

func (g *gate) take(ctx context.Context, names []string, free func(int) bool, by int) (func(), error) {
	names = distinct(names)
	for {
		changed, ok := g.tryTake(names, free, by)
		if ok {
			return func() { g.give(names, by) }, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (g *gate) tryTake(names []string, free func(int) bool, by int) (changed <-chan struct{}, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if !free(g.taken[name]) {
			if g.changed == nil {
				g.changed = make(chan struct{})
			}
			return g.changed, false
		}
	}
	if g.taken == nil {
		g.taken = map[string]int{}
	}
	for _, name := range names {
		g.taken[name] += by
	}
	return nil, true
}

func (g *gate) give(names []string, by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if g.taken[name] -= by; g.taken[name] == 0 {
			delete(g.taken, name)
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
