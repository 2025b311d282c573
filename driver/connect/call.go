package connect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// calls runs one operation at a time on each target. An operation may hang in the kernel for
// longer than anyone waits for it; its caller then gets an answer, and the target stays locked
// until the kernel has let go, so that no second operation meets the first one half way.
type calls struct {
	mu    sync.Mutex
	locks map[string]*callLock
}

type callLock struct {
	held chan struct{} // holds one element while an operation runs
	refs int           // operations that run or wait; the last one out removes the lock
}

// step says what an operation is doing at the moment, for the one who loses patience with it.
type step struct{ what atomic.Pointer[string] }

func (s *step) is(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.what.Store(&what)
}

func (s *step) String() string {
	if what := s.what.Load(); what != nil {
		return *what
	}
	return "starting"
}

// run calls fn under target's lock and returns when fn does, or when ctx ends. fn has to stop a
// little earlier, so that what it has to say arrives in time.
func run[T any](ctx context.Context, c *calls, target string, fn func(context.Context, *step) (T, error)) (T, error) {
	var none T
	unlock, err := c.lock(ctx, target)
	if err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	at := new(step)
	go func() {
		inner, cancel := earlier(ctx)
		defer cancel()
		v, err := fn(inner, at)
		unlock()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	// fn may be about to report: what it says is better than what we can.
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(100 * time.Millisecond):
		return none, fmt.Errorf("%w while %v; this goes on in the kernel, and %s cannot be worked on until it has ended: look at the node's kernel log",
			timeout(ctx), at, target)
	}
}

// earlier returns a context that ends somewhat before ctx does.
func earlier(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Second, time.Until(deadline)/8)))
}

func (c *calls) lock(ctx context.Context, target string) (unlock func(), err error) {
	c.mu.Lock()
	if c.locks == nil {
		c.locks = make(map[string]*callLock)
	}
	l := c.locks[target]
	if l == nil {
		l = &callLock{held: make(chan struct{}, 1)}
		c.locks[target] = l
	}
	l.refs++
	c.mu.Unlock()

	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.refs--; l.refs == 0 {
			delete(c.locks, target)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("%w: an earlier call on %s has not ended: try again later (%w)", ErrBusy, target, timeout(ctx))
	}
}

// timeout is the reason why ctx ended, in terms of this package.
func timeout(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ErrTimeout
}

// poll calls try until it is done or fails, and reports whether ctx ended first.
func poll(ctx context.Context, try func() (done bool, err error)) (inTime bool, err error) {
	const interval = 25 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if done, err := try(); done || err != nil {
			return true, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}
