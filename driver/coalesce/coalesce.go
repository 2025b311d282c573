// Package coalesce merges identical concurrent reads.
//
// A caller gets the result of a read that began after the call, so the result is as recent as if
// the caller itself had read it. The caller never receives the result of a read that was already
// running, because that result may be older than the call.
//
// Only one read of a key runs at a time, so a caller waits for at most one read before its own. A
// second concurrent read would shorten that wait, but each read costs CPU time, and CPU time limits
// how many calls a busy controller can serve.
//
// Package coalesce must not depend on what is read.
package coalesce

import (
	"context"
	"sync"
)

// A Group merges reads with the same key. The zero Group is ready for use. A Group may be used
// concurrently.
type Group struct {
	mu   sync.Mutex
	keys map[string]*reads
}

// reads holds the running read of one key. A key without a running read has no entry.
type reads struct {
	next *batch // the callers that are waiting for the running read to end; nil if none
}

// A batch is the set of callers that share the result of one read.
type batch struct {
	run    func() // performs the read, and closes done when it has ended
	done   chan struct{}
	cancel context.CancelFunc // ends the read, or prevents it from starting
	size   int                // callers that are still waiting
	value  any
	err    error
}

// Do calls read, and returns its results. If a read with the same key is running, Do waits until
// that read has ended, and shares the next read with all other waiting callers. All reads with the
// same key must be equivalent and return the same type. Callers must not change what a result
// refers to.
//
// A shared read is canceled when the contexts of all its callers have ended.
func Do[T any](ctx context.Context, g *Group, key string, read func(context.Context) (T, error)) (T, error) {
	g.mu.Lock()
	if g.keys == nil {
		g.keys = map[string]*reads{}
	}
	r := g.keys[key]
	if r == nil {
		r = &reads{}
		g.keys[key] = r
		g.mu.Unlock()
		defer g.ended(key, r)
		return read(ctx)
	}
	b := r.next
	if b == nil {
		shared, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b = &batch{done: make(chan struct{}), cancel: cancel}
		b.run = func() {
			defer g.ended(key, r)
			defer close(b.done)
			defer cancel()
			if b.err = shared.Err(); b.err == nil {
				b.value, b.err = read(shared)
			}
		}
		r.next = b
	}
	b.size++
	g.mu.Unlock()
	select {
	case <-b.done:
		value, _ := b.value.(T) // nil if the read was canceled
		return value, b.err
	case <-ctx.Done():
		g.leave(r, b)
		var none T
		return none, context.Cause(ctx)
	}
}

// ended must be called when a read has ended. It starts the next read if callers are waiting.
func (g *Group) ended(key string, r *reads) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := r.next; b != nil {
		r.next = nil
		go b.run()
		return
	}
	delete(g.keys, key)
}

// leave removes a caller from a batch, and cancels the batch when no callers are left.
func (g *Group) leave(r *reads, b *batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.size--; b.size > 0 {
		return
	}
	b.cancel()
	if r.next == b { // b has not started
		r.next = nil
	}
}
