package persist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// SPDK reports its configuration subsystem by subsystem. Changes in between produce combinations
// that never existed, such as a namespace without its bdev, which spdk_tgt cannot load. The saver
// therefore reads the configuration until two consecutive reads are equal. The result existed at
// one moment between them.

const (
	maxReadings    = 8
	freeReadings   = 4               // after this many reads, changes through the proxy wait
	maxChangesWait = 2 * time.Second // maximum wait of a change
)

var errUnsteady = errors.New("the target's configuration changes while it is read")

// readSteady reads a configuration that existed on the target at a single moment.
func (s *Saver) readSteady(ctx context.Context, t Target) (*Configuration, error) {
	if s.awaited { // other such calls wait for the next save anyway
		defer hold(&s.firstWait)()
	}
	var previous *Configuration
	for i := range maxReadings {
		if i == freeReadings {
			defer hold(&s.changesWait)()
		}
		c, err := read(ctx, t, s.opts.DisableAutoExamine)
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

// equal reports whether two reads returned the same configuration.
func equal(a, b *Configuration) bool {
	return slices.EqualFunc(a.Subsystems, b.Subsystems, func(a, b Subsystem) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Calls, b.Calls, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	})
}

// hold makes changes wait in Before until release is called.
func hold(wait *atomic.Pointer[chan struct{}]) (release func()) {
	done := make(chan struct{})
	wait.Store(&done)
	return func() {
		wait.Store(nil)
		close(done)
	}
}

// awaitReading waits while hold delays changes, for at most maxChangesWait.
func awaitReading(ctx context.Context, wait *atomic.Pointer[chan struct{}]) {
	done := wait.Load()
	if done == nil {
		return
	}
	timeout := time.NewTimer(maxChangesWait)
	defer timeout.Stop()
	select {
	case <-*done:
	case <-timeout.C:
	case <-ctx.Done():
	}
}
