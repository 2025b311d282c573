package quiesce

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Even if readers overlap so that a lock is never free, an operation acquires it exclusively.
func TestReadersDoNotStarveDeletion(t *testing.T) {
	var g gate
	share := func() func() {
		release, err := g.lock(t.Context(), locksOf(shared, []string{"s0", "s1"}))
		require.NoError(t, err)
		return release
	}
	first := share()
	deleted := make(chan struct{})
	go func() {
		release, err := g.lock(t.Context(), lockSet{"s0": exclusive, "parent": shared})
		if assert.NoError(t, err) {
			close(deleted)
			release()
		}
	}()
	waits := func(n int) {
		for {
			g.mu.Lock()
			found := len(g.queue)
			g.mu.Unlock()
			if found == n {
				return
			}
		}
	}
	waits(1)
	// Each reader begins before the previous reader ends.
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			held := share()
			select {
			case <-deleted:
			default:
				t.Error("a reader joined the others before the deletion")
			}
			for range 100 {
				next := share()
				held()
				held = next
			}
			held()
		})
	}
	waits(5)
	assert.False(t, g.tryLock(locksOf(shared, []string{"s1", "s0"})))
	assert.True(t, g.tryLock(locksOf(shared, []string{"s1"})), "this lock is not needed by the deletion")
	g.release(locksOf(shared, []string{"s1"}))
	first()
	<-deleted
	readers.Wait()
	assert.Empty(t, g.locked)
	assert.Empty(t, g.queue)
}

// An operation that waits for one lock does not block calls that need only other, free locks. An
// operation that has given up blocks no calls.
func TestWaitingOperationHoldsNoFreeLock(t *testing.T) {
	var g gate
	inflated, err := g.lock(t.Context(), locksOf(exclusive, []string{"filling"}))
	require.NoError(t, err)
	reader, err := g.lock(t.Context(), locksOf(shared, []string{"s"}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := g.lockOrWait(locksOf(exclusive, []string{"filling", "v", "s"}))
	assert.True(t, g.tryLock(locksOf(exclusive, []string{"v"})))
	g.release(locksOf(exclusive, []string{"v"}))
	behind := g.lockOrWait(locksOf(shared, []string{"s"}))
	assert.False(t, g.tryLock(locksOf(shared, []string{"s"})))
	cancel()
	_, err = g.lock(ctx, locksOf(exclusive, []string{"s"}))
	require.ErrorIs(t, err, context.Canceled)
	reader()
	<-behind.granted // the operation is still waiting for another lock
	g.release(behind.locks)
	inflated()
	<-w.granted
	g.release(w.locks)
	assert.Empty(t, g.locked)
}

// A reader that would never end is interrupted when an operation waits for its volumes. Readers of
// other volumes continue.
func TestWaitingOperationsInterruptReaders(t *testing.T) {
	var q Quiescer
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	ended := map[string]chan error{}
	for _, name := range []string{"a", "b", "c"} {
		begun := make(chan struct{})
		ended[name] = make(chan error, 1)
		readers.Go(func() {
			ended[name] <- q.WhileRead(ctx, func(context.Context) ([]string, error) { return []string{name, "parent"}, nil }, func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				return ctx.Err()
			})
		})
		<-begun
	}
	release, err := q.gate.lock(t.Context(), lockSet{"a": exclusive, "b": exclusive, "parent": shared})
	require.NoError(t, err)
	var busy *BusyError
	require.ErrorAs(t, <-ended["a"], &busy)
	require.ErrorAs(t, <-ended["b"], &busy)
	assert.Empty(t, ended["c"])
	cancel()
	require.ErrorIs(t, <-ended["c"], context.Canceled)
	readers.Wait()
	release()
	assert.Empty(t, q.gate.readers)
	assert.Empty(t, q.gate.locked)
}

// Readers are interrupted before the operation that waits for them times out.
func TestReadersAreInterruptedBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		release, err := g.lock(t.Context(), locksOf(shared, []string{"v"}))
		require.NoError(t, err)
		interrupted, interrupt := context.WithCancel(t.Context())
		remove := g.read(locksOf(shared, []string{"v"}), interrupt)
		go func() {
			<-interrupted.Done()
			remove()
			release()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), lockTimeout)
		defer cancel()
		_, err = g.lock(ctx, locksOf(exclusive, []string{"v"}))
		require.NoError(t, err)
	})
}

// In random sequences of calls and operations, exclusive locks really are exclusive, and no call
// waits forever.
func TestExclusiveLocksExcludeConcurrentOperations(t *testing.T) {
	var g gate
	var mu sync.Mutex
	held := map[string]int{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				l := lockSet{}
				for _, name := range []string{"a", "b", "c", "d"} {
					if by := rand.IntN(3) - 1; by != 0 {
						l[name] = by
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					go cancel()
				}
				release, err := g.lock(ctx, l)
				if err == nil {
					mu.Lock()
					for name, by := range l {
						if has := held[name]; has == exclusive || has != 0 && by == exclusive {
							t.Errorf("%s is locked twice", name)
						}
						held[name] += by
					}
					mu.Unlock()
					mu.Lock()
					for name, by := range l {
						held[name] -= by
					}
					mu.Unlock()
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	assert.Empty(t, g.locked)
	assert.Empty(t, g.queue)
}
