package figures

import (
	"context"
	"sync"
	"time"
)

// Shared shares the figures of each read among any number of callers. It is safe for concurrent
// use.
type Shared struct {
	read func(ctx context.Context) *Figures
	age  time.Duration // minimum age of the last figures before the next read
	wait time.Duration // time limit for a read

	mu      sync.Mutex
	last    *Figures
	at      time.Time     // when the last completed read began
	running chan struct{} // closed when the current read ends; nil if there is none
}

// NewShared returns a Shared that calls read at most once per age, with the time limit wait. Calls
// of read never overlap.
func NewShared(read func(ctx context.Context) *Figures, age, wait time.Duration) *Shared {
	return &Shared{read: read, age: age, wait: wait}
}

// Latest returns the latest figures, after reading them again if they are too old. A read continues
// even if ctx ends, because other callers may be waiting for it. The only possible error is ctx's.
func (s *Shared) Latest(ctx context.Context) (*Figures, error) {
	for {
		s.mu.Lock()
		if s.last != nil && time.Since(s.at) < s.age {
			defer s.mu.Unlock()
			return s.last, nil
		}
		if s.running == nil {
			s.running = make(chan struct{})
			go s.run(s.running)
		}
		running := s.running
		s.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		if last != nil {
			return last, nil
		}
	}
}

// run calls read once.
func (s *Shared) run(ended chan struct{}) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), s.wait)
	defer cancel()
	made := s.read(ctx)
	if made == nil {
		made = &Figures{Taken: time.Now()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.at, s.running = made, began, nil
	close(ended)
}
