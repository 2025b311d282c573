// Package barrier lets a call wait briefly until the client's other calls have reached the same
// point.
//
// To take snapshots on several targets at the same moment, a client makes a call to each target.
// Each call freezes its volumes, arrives at its barrier, and waits there. Once the client knows
// that all calls have arrived, it opens the barriers. A barrier that is not opened in time fails
// the call, so hosts never wait for a client that has died.
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

// These are the errors with which a call at a barrier fails. After such an error, the waiting call
// does not continue.
var (
	ErrTaken   = errors.New("another call is waiting at a barrier with this id")
	ErrGivenUp = errors.New("the barrier was abandoned")
	ErrLate    = errors.New("the barrier was not opened in time")
	ErrNobody  = errors.New("no call is waiting at a barrier with this id")
)

// Barriers holds the barriers of one process. The zero value is empty and ready to use. It is safe
// for concurrent use.
type Barriers struct {
	mu    sync.Mutex
	byKey map[string]*Barrier
}

// A Barrier is a point at which one call waits.
type Barrier struct {
	barriers *Barriers
	key      string
	calls    int  // number of calls that refer to the barrier; at 0, the barrier is removed
	claimed  bool // a call will wait at the barrier

	arrived chan struct{} // closed when that call has arrived
	decided chan struct{} // closed when the barrier is opened or given up
	arrive  sync.Once
	opened  bool // the outcome, valid once decided is closed
}

// refer returns the barrier with a key. The caller must release it.
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

// decide opens the barrier or gives it up, unless either has already happened. It reports whether
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

// Claim returns the barrier with a key, for a call that will wait at it. When the call ends, it
// must leave the barrier.
func (s *Barriers) Claim(key string) (*Barrier, error) { return s.refer(key, true) }

// Leave ends the claim of the call that has claimed the barrier.
func (b *Barrier) Leave() {
	b.decide(false) // no client should wait for a call that failed before it arrived
	b.release()
}

// Wait records the arrival at the barrier, and waits until the barrier is opened. It returns an
// error if the barrier is not opened in time, or if ctx ends. The barrier cannot be opened after
// that.
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
	if b.decide(false) { // the barrier was opened, perhaps at the last moment
		return nil
	}
	return why
}

// Arrived waits until a call has arrived at the barrier with the given key. It returns an error if
// no call arrives in time, or if the call has ended.
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

// Open lets the call that is waiting at the barrier with the given key continue. It returns an
// error if no call is waiting there, or if the barrier was abandoned.
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

// GiveUp fails the call that is waiting, or will wait, at the barrier with the given key. It has no
// effect if there is no such call, or if the barrier is open.
func (s *Barriers) GiveUp(key string) {
	b, err := s.refer(key, false)
	if err != nil {
		return
	}
	defer b.release()
	b.decide(false)
}
