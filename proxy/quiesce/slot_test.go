package quiesce

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// withSlots lets n operations run concurrently, and counts them.
func (b *bench) withSlots(n int) (running *atomic.Int32) {
	running = new(atomic.Int32)
	slots := make(chan struct{}, n)
	b.q.opts.Enter = func(ctx context.Context, _ string, _ bool) (func(), error) {
		select {
		case slots <- struct{}{}:
			running.Add(1)
			return func() { running.Add(-1); <-slots }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return running
}

func TestWaitingForLocksDoesNotOccupyASlot(t *testing.T) {
	for _, export := range []bool{false, true} {
		b := newBench(t, "v26.05")
		b.volume("v0")
		b.volume("v1")
		names := []string{"lvs0/v0"}
		if export {
			b.export("v0", true)
			names = []string{nqn("v0")}
		}
		running := b.withSlots(1)
		b.q.lockTimeout = time.Minute
		unlock, err := b.q.gate.lock(t.Context(), locksOf(shared, names))
		require.NoError(t, err)
		blocked := make(chan error, 1)
		go func() { _, err := b.take(want("v0", "s0")); blocked <- err }()
		require.Eventually(t, func() bool {
			b.q.gate.mu.Lock()
			defer b.q.gate.mu.Unlock()
			return len(b.q.gate.queue) > 0
		}, time.Minute, time.Millisecond)
		_, err = b.take(want("v1", "s1"))
		require.NoError(t, err, "the only slot is free")
		unlock()
		require.NoError(t, <-blocked)
		assert.True(t, b.exists("s0"))
		assert.Zero(t, running.Load())
	}
}

// After waiting for a lock, an operation uses a new connection. If this connection leads to a
// different target process, the operation fails, because all data that it has read is invalid.
func TestRestartWhileWaitingForLocksFailsTheOperation(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.q.lockTimeout = time.Minute
	unlock, err := b.q.gate.lock(t.Context(), locksOf(shared, []string{nqn("v0")}))
	require.NoError(t, err)
	blocked := make(chan error, 1)
	go func() { _, err := b.take(want("v0", "s0")); blocked <- err }()
	require.Eventually(t, func() bool {
		b.q.gate.mu.Lock()
		defer b.q.gate.mu.Unlock()
		return len(b.q.gate.queue) > 0
	}, time.Minute, time.Millisecond)
	b.target.Crash()
	require.NoError(t, b.target.Restart())
	unlock()
	var busy *BusyError
	require.ErrorAs(t, <-blocked, &busy)
	assert.Equal(t, "the target was restarted", busy.Why)
}

// While an operation waits at a barrier for its client, other clients can list volumes, because the
// operation calls Options.Deleting only afterward. An operation without a barrier calls
// Options.Deleting before it freezes anything.
func TestListingWorksDuringABarrierWait(t *testing.T) {
	b := newBench(t, "v24.01")
	b.volume("v0")
	b.volume("v1")
	b.export("v0", true)
	var deleting atomic.Bool
	b.q.opts.Deleting = func(context.Context, rpcschema.Release) (func(), error) {
		deleting.Store(true)
		return func() { deleting.Store(false) }, nil
	}
	waited := false
	mode := Mode{Freeze: true, Wait: func(context.Context) error {
		waited = true
		assert.False(t, deleting.Load())
		return nil
	}}
	b.target.Inject(spdktest.Fault{Method: snapshotMethod, Skip: 1, Do: spdktest.Fail})
	_, err := b.q.Take(t.Context(), wantAll([]string{"v0", "v1"}, "s"), mode)
	require.Error(t, err)
	assert.True(t, waited)
	assert.False(t, deleting.Load())
	assert.Equal(t, 1, b.called("bdev_lvol_delete"))

	b.q.opts.Deleting = func(context.Context, rpcschema.Release) (func(), error) { return nil, errors.New("no") }
	frozen := b.froze
	_, err = b.take(wantAll([]string{"v0", "v1"}, "t"))
	require.Error(t, err)
	assert.Equal(t, frozen, b.froze)
	_, err = b.q.Take(t.Context(), wantAll([]string{"v0", "v1"}, "t"), mode)
	require.Error(t, err)
	assert.False(t, b.exists("t-v0") || b.exists("t-v1"))
	assert.Equal(t, asExported, b.states("v0"))
}
