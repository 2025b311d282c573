package target

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// turns bound the calls under way, and those that wait for it.
type turns struct {
	slots   chan struct{}
	waiting atomic.Int32
}

// waitersPerSlot bounds the memory that waiting requests take.
const waitersPerSlot = 4

func newTurns(n int) turns { return turns{slots: make(chan struct{}, n)} }

// take waits for a turn; the error wraps ErrBusy or ErrAbandoned.
func (t *turns) take(ctx context.Context, bound time.Duration) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	default:
	}
	defer t.waiting.Add(-1)
	if n := t.waiting.Add(1); int(n) > waitersPerSlot*cap(t.slots) {
		return fmt.Errorf("%w: %d, and %d more wait", ErrBusy, cap(t.slots), n-1)
	}
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: %d, and none ended within %s", ErrBusy, cap(t.slots), bound)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrAbandoned, ctx.Err())
	}
}

func (t *turns) give() { <-t.slots }

func (t *turns) taken() int { return len(t.slots) }
