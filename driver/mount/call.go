package mount

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// running are the objects that operations work on: device numbers and paths. A tool or system call
// may hang for longer than its caller waits. It cannot be stopped safely (a mkfs or a repair must
// not be killed half way, a hung system call cannot), so it goes on, and its objects stay locked.
type running struct {
	mu   sync.Mutex
	what map[string]*step
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

// do runs fn with the objects locked, and returns when fn does, or when ctx ends. fn looks at ctx
// before each thing that it starts.
func do[T any](ctx context.Context, m *Mounter, objects []string, fn func(context.Context, *step) (T, error)) (T, error) {
	var none T
	at := new(step)
	release, err := m.running.claim(objects, at)
	if err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := fn(ctx, at)
		release()
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
		return none, fmt.Errorf("%v: not finished, and left to go on: %w: if it never ends, look at the node's kernel log and whether the target is running", at, context.Cause(ctx))
	}
}

func (r *running) claim(objects []string, at *step) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		if other := r.what[o]; other != nil {
			return nil, fmt.Errorf("%w: an earlier operation on %s has not ended (%v): try again later", ErrBusy, o, other)
		}
	}
	if r.what == nil {
		r.what = make(map[string]*step)
	}
	for _, o := range objects {
		r.what[o] = at
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, o := range objects {
			delete(r.what, o)
		}
	}, nil
}
