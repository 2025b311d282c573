// Package coalesce merges equal reads that are wanted at the same time into one.
//
// A caller gets the result of a read that began after the call, so the result is as new as one of
// its own read. It never gets the result of a read that was already running: what that read saw may
// be older than the call.
//
// It must not know what is read.
package coalesce

import (
	"context"
	"sync"
)

// A Group merges reads with the same key. The zero Group is ready for use. It may be used
// concurrently.
type Group struct {
	mu      sync.Mutex
	waiting map[string]*batch // those that wait for the running read of a key; nil values: one runs, and nobody waits
}

// A batch is the callers that get the result of one read.
type batch struct {
	run    func() // starts the read, and closes done when it has ended
	done   chan struct{}
	cancel context.CancelFunc // ends the read, or keeps it from beginning
	size   int                // callers that still wait
	value  any
	err    error
}

// Do calls read, and returns its results. If a read with the same key is running, Do waits until it
// has ended, and shares the next one with all others that wait. All reads with one key must return
// the same type and mean the same. Callers must not change what a result refers to.
//
// A shared read is cancelled when the contexts of all its callers have ended.
func Do[T any](ctx context.Context, g *Group, key string, read func(context.Context) (T, error)) (T, error) {
	g.mu.Lock()
	b, running := g.waiting[key]
	if !running {
		if g.waiting == nil {
			g.waiting = map[string]*batch{}
		}
		g.waiting[key] = nil
		g.mu.Unlock()
		defer g.next(key)
		return read(ctx)
	}
	if b == nil {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b = &batch{done: make(chan struct{}), cancel: cancel}
		b.run = func() {
			defer g.next(key)
			defer close(b.done)
			defer cancel()
			if b.err = shared.Err(); b.err == nil {
				b.value, b.err = read(shared)
			}
		}
		g.waiting[key] = b
	}
	b.size++
	g.mu.Unlock()
	select {
	case <-b.done:
		value, _ := b.value.(T) // nil if the read was cancelled
		return value, b.err
	case <-ctx.Done():
		g.leave(key, b)
		var none T
		return none, context.Cause(ctx)
	}
}

// next starts the read for which callers wait, after another one has ended.
func (g *Group) next(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.waiting[key]
	if b == nil {
		delete(g.waiting, key)
		return
	}
	g.waiting[key] = nil
	go b.run()
}

// leave ends a batch if nobody waits for it any more.
func (g *Group) leave(key string, b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b.size--
	if b.size > 0 {
		return
	}
	b.cancel()
	if g.waiting[key] == b { // it has not begun
		g.waiting[key] = nil
	}
}
