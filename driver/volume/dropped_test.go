package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If the target refuses to delete a volume but stops listing it, the volume has not been deleted,
// and reappears after a restart.
func TestDroppedVolumeIsNotReportedAsDeleted(t *testing.T) {
	for _, release := range []string{"v26.05", "v24.01"} {
		t.Run(release, func(t *testing.T) { testDroppedVolume(t, rpcschema.MustRelease(release)) })
	}
}

func testDroppedVolume(t *testing.T, r rpcschema.Release) {
	b := newTestServiceOf(t, export.TCP, r)
	if b.sim == nil {
		t.Skip("only the simulated target can stay busy indefinitely")
	}
	v := b.create(t, "pvc-1", 8)
	other := b.create(t, "pvc-2", 8)
	snap, err := b.Snapshot(t.Context(), "snap", other.UUID)
	require.NoError(t, err)

	require.NoError(t, b.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: v.UUID})) // this allocates the volume's clusters
	b.sim.MakeBusy(v.UUID)
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrDropped)
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrDropped, "when it is repeated")
	require.NoError(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil), "volumes that SPDK reports as deleted are deleted")
	unlisted, err := b.Unlisted(t.Context())
	require.NoError(t, err)
	another := NewTarget(b.Config).Service(b.rpc)
	if r.Before(rpcschema.MustRelease("v24.05")) { // these releases do not report clusters
		assert.Empty(t, unlisted)
		return
	}
	require.Len(t, unlisted, 1)
	assert.Equal(t, "lvs0", unlisted[0].Store.Name)
	assert.EqualValues(t, v.SizeBytes, unlisted[0].Bytes())
	require.ErrorIs(t, another.Delete(t.Context(), v.UUID), ErrDropped)
	require.ErrorIs(t, another.DeleteSnapshot(t.Context(), snap.UUID, nil), ErrDropped, "the clusters may belong to this snapshot")
}

// A volume that does not exist counts as deleted if SPDK has not refused to delete it, regardless
// of other volumes.
func TestUnknownVolumeCountsAsDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 8)
	snap, err := b.Snapshot(t.Context(), "snap", v.UUID)
	require.NoError(t, err)
	clone, err := b.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: 8 * MiB})
	require.NoError(t, err)
	require.NoError(t, b.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: clone.UUID}))
	_, err = b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "pvc-3", MinBytes: 8 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	unlisted, err := b.Unlisted(t.Context())
	require.NoError(t, err)
	assert.Empty(t, unlisted)
	require.NoError(t, b.Delete(t.Context(), v.UUID))
}

// While the free space of an lvstore changes, its cluster counts prove neither that a volume was
// deleted nor that SPDK dropped one. The counts of other lvstores remain valid.
func TestChangingSpaceIsNotReportedAsUnlisted(t *testing.T) {
	b := newTestService(t, export.TCP)
	caller := &changingStore{Caller: b.fault}
	s := NewTarget(b.Config).Service(spdkrpc.NewClient(caller))
	v := b.create(t, "pvc-1", 8)
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	thick := Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: class.Class{Thick: true}}
	store := b.store(t, "lvs1")
	caller.uuid = store.UUID
	var other Volume
	caller.change = func() {
		if other.UUID != "" {
			assert.NoError(t, b.Delete(context.WithoutCancel(t.Context()), other.UUID))
			other = Volume{}
			return
		}
		var err error
		other, err = b.Create(t.Context(), store, thick)
		assert.NoError(t, err)
	}
	for range 2 { // start once with a growing lvstore, and once with a shrinking lvstore
		unlisted, err := s.Unlisted(t.Context())
		require.NoError(t, err)
		assert.Empty(t, unlisted)
		err = s.Delete(t.Context(), v.UUID)
		require.ErrorIs(t, err, ErrDropped)
		assert.ErrorContains(t, err, "free space of lvstore lvs1 changes too often")
		caller.change()
	}
	caller.change = nil
	require.NoError(t, s.Delete(t.Context(), v.UUID))
	if other.UUID != "" {
		require.NoError(t, b.Delete(t.Context(), other.UUID))
	}
}

// If an lvstore was changing only during the first pass, a later pass proves the deletion.
func TestDeletionIsProvenOnceSpaceIsSteady(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 8)
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	store := b.store(t, "lvs1")
	caller, changed := &changingStore{Caller: b.fault, uuid: store.UUID}, 0
	caller.change = func() {
		caller.change = nil
		changed++
		_, err := b.Create(t.Context(), store, Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: class.Class{Thick: true}})
		assert.NoError(t, err)
	}
	s := NewTarget(b.Config).Service(spdkrpc.NewClient(caller))
	require.NoError(t, s.proveDeleted(t.Context(), v.UUID))
	assert.Equal(t, 1, changed)
}

// A changingStore calls change each time the volumes of one lvstore have been listed.
type changingStore struct {
	spdkrpc.Caller
	uuid   string
	change func()
}

func (c *changingStore) Call(ctx context.Context, method string, params, result any) error {
	err := c.Caller.Call(ctx, method, params, result)
	raw, _ := json.Marshal(params)
	if method == "bdev_lvol_get_lvols" && bytes.Contains(raw, []byte(c.uuid)) && c.change != nil {
		c.change()
	}
	return err
}
