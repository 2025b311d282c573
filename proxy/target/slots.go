package target

import (
	"context"
	"time"
)

// Slots bound how much work of one kind runs at once, and share it between users by the rules for
// calls. A user never gets more slots than are free, and wait lists are served round-robin. Slots
// may be used concurrently.
type Slots struct {
	queue *queue
	wait  time.Duration
}

// NewSlots makes slots, of which one user may have as many as limits allow. A caller waits for a
// slot for up to wait.
func NewSlots(l Limits, wait time.Duration) *Slots {
	q := newQueue(l)
	q.pace.burst = l.Total // this work is not sent in bursts
	return &Slots{q, wait}
}

// Acquire waits for a slot of a user. release returns it. The error is a *BusyError, or wraps
// ErrAbandoned if ctx ended first.
func (s *Slots) Acquire(ctx context.Context, who string) (release func(), err error) {
	slot, err := s.queue.acquire(ctx, who, new(size), s.wait)
	if err != nil {
		return nil, err
	}
	return func() { s.queue.release(slot) }, nil
}
