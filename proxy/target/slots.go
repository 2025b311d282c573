package target

import (
	"context"
	"time"
)

// Slots limits how much work of one kind runs concurrently, and divides it among users by the same
// rules as calls: a user's slots never outnumber the free slots, and wait lists are served
// round-robin. It is safe for concurrent use.
type Slots struct {
	queue *queue
	wait  time.Duration
}

// NewSlots returns Slots with these limits. A caller waits up to wait for a slot.
func NewSlots(l Limits, wait time.Duration) *Slots {
	q := newQueue(l)
	q.pace.burst = l.Total // this kind of work is not done in bursts
	return &Slots{q, wait}
}

// Acquire waits for a slot for a user. release returns the slot. The error is a *BusyError or, if
// ctx ended first, wraps ErrAbandoned.
func (s *Slots) Acquire(ctx context.Context, who string) (release func(), err error) {
	slot, err := s.queue.acquire(ctx, who, new(size), s.wait)
	if err != nil {
		return nil, err
	}
	return func() { s.queue.release(slot) }, nil
}
