package persist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// A configuration is told subsystem by subsystem. Changes that come in between make
// parts that never were there together, such as a namespace without its bdev, which
// spdk_tgt does not load. So it is read until two readings in a row are equal: what
// did not change from the one to the other was there between them, all at once.

const (
	readings    = 8
	readingFree = 4               // so many while changes go on; afterwards they wait
	maxWait     = 2 * time.Second // of a change for readings
)

var errUnsteady = errors.New("the target's configuration changes while it is read")

// readSteady reads a configuration that the target had at one moment.
func (s *Saver) readSteady(ctx context.Context, t Target) (*Configuration, error) {
	var previous *Configuration
	for i := range readings {
		if i == readingFree {
			defer s.holdChanges()()
		}
		c, err := read(ctx, t)
		if err != nil {
			return nil, err
		}
		if previous != nil && equal(previous, c) {
			return c, nil
		}
		previous = c
	}
	return nil, errUnsteady
}

// equal reports whether the target has told the same.
func equal(a, b *Configuration) bool {
	return slices.EqualFunc(a.Subsystems, b.Subsystems, func(a, b Subsystem) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Calls, b.Calls, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	})
}

// holdChanges makes changes wait in Before until release is called.
func (s *Saver) holdChanges() (release func()) {
	done := make(chan struct{})
	s.changesWait.Store(&done)
	return func() {
		s.changesWait.Store(nil)
		close(done)
	}
}

// awaitReading waits while changes are held, though not for long.
func (s *Saver) awaitReading(ctx context.Context) {
	done := s.changesWait.Load()
	if done == nil {
		return
	}
	bound := time.NewTimer(maxWait)
	defer bound.Stop()
	select {
	case <-*done:
	case <-bound.C:
	case <-ctx.Done():
	}
}
