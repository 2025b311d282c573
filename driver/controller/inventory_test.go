package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
)

func TestInventoryContainsOnlyTheNamedSnapshots(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id := b.snapshot(t, "snap-1", v).GetSnapshotId()
	b.snapshot(t, "snap-2", v)
	_, err := b.InventoryOfSnapshots(t.Context(), []string{id}, time.Minute)
	require.ErrorContains(t, err, config.CredentialsEnv)
	b.withCredentials(t)
	all, err := b.InventoryOfSnapshots(t.Context(), []string{id}, time.Minute)
	require.NoError(t, err)
	require.Len(t, all.Targets, 1)
	require.Len(t, all.Targets[0].Snapshots, 1)
	assert.Equal(t, id, all.Targets[0].Snapshots[0].ID)
	for _, unknown := range []string{"", "other-" + id} {
		_, err = b.InventoryOfSnapshots(t.Context(), []string{unknown}, time.Minute)
		require.Error(t, err, unknown)
	}
}
