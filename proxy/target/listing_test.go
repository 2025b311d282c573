package target

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Older releases crash if volumes are listed during a deletion. The proxy sends no listing to such
// a target until the deletion has ended, even if no client is waiting for the deletion anymore.
// Newer releases receive the listing.
func TestVolumesAreNotListedDuringADeletion(t *testing.T) {
	for release, together := range map[string]bool{"v24.01": false, "v24.05": false, "v24.09": true, "v26.05": true} {
		deletions, end := make(chan struct{}, 8), make(chan struct{})
		f := newFake(t, release, func(c call) string {
			if c.Method == "bdev_lvol_delete" {
				deletions <- struct{}{}
				<-end
			}
			return `"result":true`
		})
		c := connect(t, newTarget(t, Config{Socket: f.path, QueueWait: 20 * time.Millisecond}))
		other := connect(t, c.target) // a second connection to the same target
		list := func() error {
			_, err := other.Call(t.Context(), "ann", "bdev_lvol_get_lvols", nil, long)
			return err
		}
		require.NoError(t, list())
		_, err := c.Call(t.Context(), "bob", "bdev_lvol_delete", map[string]any{"name": "v"}, time.Millisecond)
		require.ErrorIs(t, err, spdkrpc.OutcomeUnknown, "the deletion's deadline has passed, but SPDK is still executing it")
		<-deletions
		if together {
			close(end)
			require.NoError(t, list(), release)
			continue
		}
		require.ErrorIs(t, list(), ErrDeleting, release)
		// this listing is harmless, but slow on the fake target
		_, err = other.Call(t.Context(), "ann", "bdev_get_bdevs", nil, time.Millisecond)
		require.NotErrorIs(t, err, ErrDeleting)
		close(end)
		require.Eventually(t, func() bool { return list() == nil }, long, time.Millisecond, release)
	}
}

func TestListingsAndDeletionsDoNotOverlap(t *testing.T) {
	var a listingGate
	old := rpcschema.MustRelease("v24.05")
	enter := func(ctx context.Context, method string, wait time.Duration) (func(), error) {
		return a.enter(ctx, old, method, wait)
	}
	must := func(method string) func() {
		leave, err := enter(t.Context(), method, long)
		require.NoError(t, err)
		return leave
	}
	first, second := must("bdev_lvol_get_lvols"), must("bdev_lvol_get_lvols")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := enter(gone, "bdev_lvol_delete", long)
	require.ErrorIs(t, err, ErrAbandoned)
	must("bdev_lvol_get_lvols")() // a canceled call does not delay other calls

	deleted := make(chan func())
	go func() { deleted <- must("bdev_lvol_delete") }()
	require.Eventually(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.deletes == 1 }, long, time.Millisecond)
	_, err = enter(t.Context(), "bdev_lvol_get_lvols", time.Millisecond)
	require.ErrorIs(t, err, ErrDeleting, "a waiting deletion takes precedence over new listings")
	first()
	select {
	case <-deleted:
		require.Fail(t, "a listing is still running")
	default:
	}
	second()
	leave, also := <-deleted, must("bdev_lvol_delete")
	must("bdev_get_bdevs")()
	leave()
	_, err = enter(t.Context(), "bdev_lvol_get_lvols", time.Millisecond)
	require.ErrorIs(t, err, ErrDeleting)
	also()
	must("bdev_lvol_get_lvols")()
	assert.Zero(t, a.lists+a.deletes)
}

// Each subtest checks one rule for listings and deletions.
func TestListingsAndDeletionsTakeTurns(t *testing.T) {
	const list = "bdev_lvol_get_lvols"
	old, safe := rpcschema.MustRelease("v24.01"), rpcschema.MustRelease("v24.09")
	waiting := func(a *listingGate) func() bool {
		return func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.changed != nil }
	}
	type outcome struct {
		leave func()
		err   error
	}
	enter := func(a *listingGate, ctx context.Context, method string, wait time.Duration) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			leave, err := a.enter(ctx, old, method, wait)
			done <- outcome{leave, err}
		}()
		return done
	}
	must := func(a *listingGate, method string) func() {
		leave, err := a.enter(t.Context(), old, method, long)
		require.NoError(t, err)
		return leave
	}
	t.Run("all deletions", func(t *testing.T) {
		for _, method := range []string{"bdev_lvol_delete", "bdev_lvol_delete_lvstore"} {
			var a listingGate
			leave := must(&a, method)
			_, err := a.enter(t.Context(), old, list, time.Millisecond)
			require.ErrorIs(t, err, ErrDeleting, method)
			_, err = a.enter(t.Context(), safe, list, time.Millisecond)
			require.NoError(t, err, "the listing is sent to newer releases")
			leave()
			must(&a, list)
			_, err = a.enter(t.Context(), old, method, time.Millisecond)
			require.ErrorIs(t, err, ErrListing, method)
			_, err = a.enter(t.Context(), safe, method, time.Millisecond)
			require.NoError(t, err)
			must(&a, list) // the canceled deletion does not delay other calls
		}
	})
	t.Run("when a deletion gives up, the calls that waited for it continue", func(t *testing.T) {
		var a listingGate
		must(&a, list)
		ctx, cancel := context.WithCancel(t.Context())
		deletion := enter(&a, ctx, "bdev_lvol_delete", long)
		require.Eventually(t, waiting(&a), long, time.Millisecond)
		a.mu.Lock()
		woken := a.changed // a listing is also waiting for this channel
		a.mu.Unlock()
		cancel()
		require.ErrorIs(t, (<-deletion).err, ErrAbandoned)
		select {
		case <-woken:
		default:
			require.Fail(t, "the waiting call was not woken")
		}
	})
	t.Run("one of two deletions ends", func(t *testing.T) {
		var a listingGate
		first := must(&a, "bdev_lvol_delete")
		must(&a, "bdev_lvol_delete")
		listed := enter(&a, t.Context(), list, 100*time.Millisecond)
		require.Eventually(t, func() bool { return waiting(&a)() || len(listed) > 0 }, long, time.Millisecond)
		first()
		require.ErrorIs(t, (<-listed).err, ErrDeleting)
	})
	t.Run("when a call ends, the waiting calls continue", func(t *testing.T) {
		for _, c := range [][2]string{{list, "bdev_lvol_delete"}, {"bdev_lvol_delete", list}} {
			var a listingGate
			leave := must(&a, c[0])
			next := enter(&a, t.Context(), c[1], long/2)
			require.Eventually(t, waiting(&a), long, time.Millisecond)
			leave()
			require.NoError(t, (<-next).err, c[1])
		}
	})
	t.Run("a direct deletion", func(t *testing.T) {
		target := newTarget(t, Config{Socket: "/nowhere", QueueWait: time.Millisecond})
		leave, err := target.Deleting(t.Context(), old)
		require.NoError(t, err)
		_, err = target.listing.enter(t.Context(), old, list, time.Millisecond)
		require.ErrorIs(t, err, ErrDeleting)
		leave()
		must(&target.listing, list)
		_, err = target.Deleting(t.Context(), old)
		require.ErrorIs(t, err, ErrListing)
		_, err = target.Deleting(t.Context(), safe)
		require.NoError(t, err)
	})
}

// Endlessly overlapping deletions do not block a listing forever, and a listing that waits for a
// long deletion does not block other deletions for long.
func TestOverlappingDeletionsDoNotStarveListings(t *testing.T) {
	old := rpcschema.MustRelease("v24.01")
	var a listingGate
	stop := make(chan struct{})
	var loops sync.WaitGroup
	running := make(chan func(), 2)
	next := func() bool {
		leave, err := a.enter(context.Background(), old, "bdev_lvol_delete", long)
		if err != nil {
			return false
		}
		running <- leave
		return true
	}
	require.True(t, next())
	// each deletion ends only after another has begun, unless the other has to wait
	loops.Go(func() {
		for {
			select {
			case <-stop:
				(<-running)()
				return
			default:
			}
			begun := make(chan bool, 1)
			go func() { begun <- next() }()
			select {
			case <-begun:
				(<-running)()
			case <-time.After(200 * time.Millisecond):
				(<-running)()
				<-begun
			}
		}
	})
	leave, err := a.enter(t.Context(), old, "bdev_lvol_get_lvols", long)
	require.NoError(t, err)
	leave()
	close(stop)
	loops.Wait()

	slow, err := a.enter(t.Context(), old, "bdev_lvol_delete", long)
	require.NoError(t, err)
	_, err = a.enter(t.Context(), old, "bdev_lvol_get_lvols", time.Millisecond)
	require.ErrorIs(t, err, ErrDeleting)
	other, err := a.enter(t.Context(), old, "bdev_lvol_delete", long)
	require.NoError(t, err, "no listing is still waiting")
	other()
	slow()
	assert.Zero(t, a.lists+a.deletes+a.waiting)
}

func TestDeletionWithoutSlotAllowsListings(t *testing.T) {
	end := make(chan struct{})
	f := newFake(t, "v24.01", func(c call) string {
		if c.Method == "bdev_get_bdevs" {
			<-end
		}
		return `"result":true`
	})
	c := connect(t, newTarget(t, Config{Socket: f.path, UserInFlight: 1, QueueWait: long}))
	var calls sync.WaitGroup
	calls.Go(func() { _, _ = c.Call(t.Context(), "bob", "bdev_get_bdevs", nil, long) })
	require.Eventually(t, func() bool { return c.target.Load().InFlight == 1 }, long, time.Millisecond)
	calls.Go(func() { _, _ = c.Call(t.Context(), "bob", "bdev_lvol_delete", map[string]any{"name": "v"}, long) })
	require.Eventually(t, func() bool { return c.target.Load().Waiting == 1 }, long, time.Millisecond)
	leave, err := c.target.listing.enter(t.Context(), c.release, "bdev_lvol_get_lvols", time.Millisecond)
	require.NoError(t, err)
	leave()
	close(end)
	calls.Wait()
}
