package volume

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An earlyList simulates a target that is still loading its lvstores. Until a snapshot is taken,
// its lists of lvols are incomplete.
type earlyList struct {
	spdkrpc.Caller
	mu    sync.Mutex
	calls []string
}

func (e *earlyList) Call(ctx context.Context, method string, params, result any) error {
	e.mu.Lock()
	e.calls = append(e.calls, method)
	early := method == "bdev_lvol_get_lvols" && !slices.Contains(e.calls, "bdev_lvol_snapshot")
	e.mu.Unlock()
	if early {
		return json.Unmarshal([]byte("[]"), result)
	}
	return e.Caller.Call(ctx, method, params, result)
}

// An existing snapshot may be missing from the list before the call. The list after the call
// contains it, and the older snapshot is kept.
func TestSnapshotMissedByAnEarlyListIsFound(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	early := &earlyList{Caller: b.fault}
	s := b.Target.Service(spdkrpc.NewClient(early))
	_, err := s.Stores(t.Context())
	require.NoError(t, err)
	first, err := b.Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)

	later := b.Now().Add(time.Minute)
	b.Target.Now = func() time.Time { return later } // so that the second snapshot has a different name
	again, err := s.Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)
	assert.Equal(t, first.UUID, again.UUID)
	assert.Contains(t, early.calls, "bdev_lvol_snapshot", "otherwise the first list was not missed")
	assert.Contains(t, early.calls, "bdev_lvol_delete")
	all, _, err := b.ListSnapshots(t.Context(), "", Page{})
	require.NoError(t, err)
	assert.Len(t, all, 1)
}

// If the target has new lvstores, the driver lists the lvols in the new lvstores and in those it
// has seen before.
func TestLvolsInNewLvstoresAreListed(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	s := b.Target.Service(spdkrpc.NewClient(b.fault))
	for range 2 { // first without known lvstores, then with one
		lvols, err := s.lvolsSoon(t.Context())
		require.NoError(t, err)
		require.Len(t, lvols, 1)
		assert.Equal(t, v.UUID, lvols[0].UUID)
	}
	known := s.seen.known()
	require.Len(t, known, 2)
	known[0].Name = "renamed" // renamed after the lvstore was seen
	s.seen.stores = map[string]Store{known[0].UUID: known[0], known[1].UUID: known[1]}
	lvols, err := s.lvolsSoon(t.Context())
	require.NoError(t, err)
	assert.Len(t, lvols, 1)
}
