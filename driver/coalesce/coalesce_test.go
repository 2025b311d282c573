package coalesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A clockRead is a read that takes one second, and returns the time at which it began.
type clockRead struct {
	reads atomic.Int32
}

func (c *clockRead) read(ctx context.Context) (time.Time, error) {
	c.reads.Add(1)
	now := time.Now()
	select {
	case <-time.After(time.Second):
		return now, nil
	case <-ctx.Done():
		return now, context.Cause(ctx)
	}
}

// Each caller receives the result of a read that began after its call, and callers that wait at the
// same time share one read.
func TestReadBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := &clockRead{}
		var callers sync.WaitGroup
		for i := range 40 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				called := time.Now()
				began, err := Do(t.Context(), &g, "a", c.read)
				assert.NoError(t, err)
				assert.False(t, began.Before(called), "caller %d got a read that began before its call", i)
			})
		}
		callers.Wait()
		reads := c.reads.Load()
		assert.LessOrEqual(t, int(reads), 5, "calls during four seconds, reads of one second")
		_, err := Do(t.Context(), &g, "a", c.read)
		require.NoError(t, err)
		assert.Equal(t, reads+1, c.reads.Load(), "no result is kept")
		assert.Empty(t, g.keys)
	})
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		began := time.Now()
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				_, err := Do(t.Context(), &g, fmt.Sprint(i), (&clockRead{}).read)
				assert.NoError(t, err)
			})
		}
		callers.Wait()
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestErrorIsReturnedToAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		failed := errors.New("failed")
		var reads atomic.Int32
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				_, err := Do(t.Context(), &g, "a", func(context.Context) (int, error) {
					time.Sleep(time.Second)
					reads.Add(1)
					return 0, failed
				})
				assert.ErrorIs(t, err, failed)
			})
		}
		callers.Wait()
		assert.EqualValues(t, 2, reads.Load())
	})
}

// A caller that gives up returns immediately and does not end the read that other callers share.
// When all callers have given up, the read is canceled.
func TestReadIsCanceledWhenAllCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		c := &clockRead{}
		late := errors.New("late")
		call := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), patience, late)
			defer cancel()
			_, err := Do(ctx, &g, "a", c.read)
			return err
		}
		var callers sync.WaitGroup
		// start starts a read that all other callers have to wait for.
		start := func() {
			callers.Go(func() { assert.NoError(t, call(time.Hour)) })
			synctest.Wait()
		}
		start()
		began := time.Now()
		for _, p := range []struct {
			patience, took time.Duration
			err            error
		}{
			{500 * time.Millisecond, 500 * time.Millisecond, late},
			{1500 * time.Millisecond, 1500 * time.Millisecond, late},
			{time.Hour, 2 * time.Second, nil},
		} {
			callers.Go(func() {
				assert.ErrorIs(t, call(p.patience), p.err)
				assert.Equal(t, p.took, time.Since(began))
			})
		}
		callers.Wait()
		assert.EqualValues(t, 2, c.reads.Load())

		start()
		callers.Go(func() { assert.ErrorIs(t, call(500*time.Millisecond), late) }) // gives up before its read begins
		callers.Wait()
		assert.EqualValues(t, 3, c.reads.Load())

		start()
		began = time.Now()
		for _, patience := range []time.Duration{1500 * time.Millisecond, 1700 * time.Millisecond} { // give up while the read runs
			callers.Go(func() { assert.ErrorIs(t, call(patience), late) })
		}
		callers.Wait()
		synctest.Wait()
		assert.Equal(t, 1700*time.Millisecond, time.Since(began))
		assert.Empty(t, g.keys, "the read was cancelled")
	})
}

func TestManyConcurrentCallersShareReads(t *testing.T) {
	var g Group
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
				_, err := Do(ctx, &g, fmt.Sprint(i%3), func(ctx context.Context) (int, error) { return i % 3, ctx.Err() })
				if err != nil {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	awaitIdle(t, &g)
}

// awaitIdle waits until no read is running.
func awaitIdle(t *testing.T, g *Group) {
	t.Helper()
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.keys) == 0
	}, time.Minute, time.Millisecond)
}
