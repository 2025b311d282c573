package target

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Releases that die of it are not asked for their volumes while they delete one, also
// when nobody waits for the deletion any more; newer ones are.
func TestVolumesAreNotListedWhileOneIsDeleted(t *testing.T) {
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
		other := connect(t, c.target) // perhaps another connection: it is all one target
		list := func() error {
			_, err := other.Call(t.Context(), "ann", "bdev_lvol_get_lvols", nil, long)
			return err
		}
		require.NoError(t, list())
		_, err := c.Call(t.Context(), "bob", "bdev_lvol_delete", map[string]any{"name": "v"}, time.Millisecond)
		require.ErrorIs(t, err, spdkrpc.OutcomeUnknown, "its deadline is over, and SPDK goes on")
		<-deletions
		if together {
			close(end)
			require.NoError(t, list(), release)
			continue
		}
		require.ErrorIs(t, list(), ErrDeleting, release)
		_, err = other.Call(t.Context(), "ann", "bdev_get_bdevs", nil, time.Millisecond) // is harmless, if slow behind this fake
		require.NotErrorIs(t, err, ErrDeleting)
		close(end)
		require.Eventually(t, func() bool { return list() == nil }, long, time.Millisecond, release)
	}
}

func TestApart(t *testing.T) {
	var a apart
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
	must("bdev_lvol_get_lvols")() // what left holds up nobody

	deleted := make(chan func())
	go func() { deleted <- must("bdev_lvol_delete") }()
	require.Eventually(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.deletes == 1 }, long, time.Millisecond)
	_, err = enter(t.Context(), "bdev_lvol_get_lvols", time.Millisecond)
	require.ErrorIs(t, err, ErrDeleting, "a waiting deletion goes first")
	first()
	select {
	case <-deleted:
		require.Fail(t, "a listing is still under way")
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
