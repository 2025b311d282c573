// Package barrier lets a call wait briefly until other calls of the same client have reached the
// same point.
//
// To take snapshots on several targets at the same time, a client makes a call to each target. Each
// call freezes its volumes, arrives at its barrier, and waits there. Once all calls have arrived,
// the client opens the barriers. If a barrier is not opened in time, its call fails, so that hosts
// never wait for a client that has died.
//
// The package must not depend on what the calls do or who makes them: a barrier is identified only
// by a key.
package barrier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A call that waits at a barrier fails with one of these errors, and does not continue.
var (
	ErrTaken   = errors.New("another call is waiting at a barrier with this id")
	ErrGivenUp = errors.New("the barrier was abandoned")
	ErrLate    = errors.New("the barrier was not opened in time")
	ErrNobody  = errors.New("no call is waiting at a barrier with this id")
)

// Barriers contains the barriers of one process. The zero value is empty and ready to use. It is
// safe for concurrent use.
type Barriers struct {
	mu    sync.Mutex
	byKey map[string]*Barrier
}

// A Barrier is a point at which one call waits.
type Barrier struct {
	barriers *Barriers
	key      string
	calls    int  // number of calls that refer to the barrier; the barrier is removed when it reaches 0
	claimed  bool // whether a call waits or will wait at the barrier

	arrived chan struct{} // closed when that call arrives
	decided chan struct{} // closed when the barrier is opened or given up
	arrive  sync.Once
	opened  bool // the outcome, valid after decided is closed
}

// refer returns the barrier with this key. The caller must release it.
func (s *Barriers) refer(key string, claim bool) (*Barrier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byKey[key]
	if b == nil {
		b = &Barrier{barriers: s, key: key, arrived: make(chan struct{}), decided: make(chan struct{})}
		if s.byKey == nil {
			s.byKey = map[string]*Barrier{}
		}
		s.byKey[key] = b
	}
	if claim && b.claimed {
		return nil, ErrTaken
	}
	b.claimed = b.claimed || claim
	b.calls++
	return b, nil
}

func (b *Barrier) release() {
	b.barriers.mu.Lock()
	defer b.barriers.mu.Unlock()
	if b.calls--; b.calls == 0 {
		delete(b.barriers.byKey, b.key)
	}
}

// decide opens the barrier or gives it up, unless this has already been decided. It reports whether
// the barrier is open.
func (b *Barrier) decide(open bool) (opened bool) {
	b.barriers.mu.Lock()
	defer b.barriers.mu.Unlock()
	select {
	case <-b.decided:
	default:
		b.opened = open
		close(b.decided)
	}
	return b.opened
}

// Claim returns the barrier with this key for a call that will wait there. The call must leave the
// barrier when it ends.
func (s *Barriers) Claim(key string) (*Barrier, error) { return s.refer(key, true) }

// Leave releases the barrier that the call has claimed.
func (b *Barrier) Leave() {
	b.decide(false) // no client should wait for a call that failed before it arrived
	b.release()
}

// Wait announces the call's arrival, and waits until the barrier is opened. If the barrier is not
// opened in time, or if ctx ends, Wait returns an error, and the barrier can no longer be opened.
func (b *Barrier) Wait(ctx context.Context, most time.Duration) error {
	b.arrive.Do(func() { close(b.arrived) })
	late := time.NewTimer(most)
	defer late.Stop()
	why := ErrGivenUp
	select {
	case <-b.decided:
	case <-late.C:
		why = fmt.Errorf("%w (%s)", ErrLate, most)
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	if b.decide(false) { // the barrier was opened just in time
		return nil
	}
	return why
}

// Arrived waits until a call has arrived at the barrier with this key. It returns an error if no
// call arrives in time, or if the call has ended.
func (s *Barriers) Arrived(ctx context.Context, key string, most time.Duration) error {
	b, err := s.refer(key, false)
	if err != nil {
		return err
	}
	defer b.release()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-b.arrived:
	case <-b.decided:
	case <-late.C:
		return ErrNobody
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-b.decided:
		return ErrGivenUp
	default:
		return nil
	}
}

// Open lets the call that is waiting at the barrier with this key continue. It returns an error if
// no call is waiting there, or if the barrier has been given up.
func (s *Barriers) Open(key string) error {
	b, err := s.refer(key, false)
	if err != nil {
		return err
	}
	defer b.release()
	select {
	case <-b.arrived:
	default:
		return ErrNobody
	}
	if !b.decide(true) {
		return ErrGivenUp
	}
	return nil
}

// GiveUp fails the call that is waiting, or will wait, at the barrier with this key. It does
// nothing if there is no such call, or if the barrier is open.
func (s *Barriers) GiveUp(key string) {
	b, err := s.refer(key, false)
	if err != nil {
		return
	}
	defer b.release()
	b.decide(false)
}
