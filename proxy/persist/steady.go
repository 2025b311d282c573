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

// SPDK reports its configuration subsystem by subsystem. If something changes in between, the
// combined result describes a state that never existed, such as a namespace without its bdev, and
// spdk_tgt cannot load it. Therefore, the saver reads the configuration until two consecutive reads
// are equal. This configuration existed at some time between the two reads.

const (
	maxReadings    = 8
	freeReadings   = 4               // after this many reads, changes through the proxy wait
	maxChangesWait = 2 * time.Second // maximum wait of a change
)

var errUnsteady = errors.New("the target's configuration keeps changing while it is being read")

// readSteady reads a configuration that existed on the target at one point in time.
func (s *Saver) readSteady(ctx context.Context, t Target) (*Configuration, error) {
	if s.awaited { // other calls that are waiting for a save will use the next one
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

func equal(a, b *Configuration) bool {
	return slices.EqualFunc(a.Subsystems, b.Subsystems, func(a, b Subsystem) bool {
		return a.Name == b.Name && slices.EqualFunc(a.Calls, b.Calls, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	})
}

// hold makes calls wait in Before until release is called.
func hold(wait *atomic.Pointer[chan struct{}]) (release func()) {
	done := make(chan struct{})
	wait.Store(&done)
	return func() {
		wait.Store(nil)
		close(done)
	}
}

// awaitReading blocks while hold delays calls, but for at most maxChangesWait.
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
