package volume

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
)

func TestReplicaNamesAreParsed(t *testing.T) {
	r := ReplicaID{uuid.NewString(), 1}
	assert.LessOrEqual(t, len(r.LvolName()), nameMax)
	got, ok := parseReplica(r.LvolName())
	assert.True(t, ok)
	assert.Equal(t, r, got)
	for _, name := range []string{"replica.x.0", "replica", "pvc-1", r.LvolName() + ".used", "replica." + uuid.NewString() + ".0"} {
		assert.False(t, isReplica(name), name)
	}
	assert.False(t, isReplica(LvolName(r.LvolName())), "a user's volume cannot have the name of a replica")
	assert.Equal(t, "replica.mine", LvolName("replica.mine"))
}

// Operations on volumes refuse a replica, and lists omit it.
func TestVolumeOperationsRefuseReplicas(t *testing.T) {
	b := newTestService(t, export.TCP)
	ctx, st := t.Context(), b.store(t, "lvs0")
	r := ReplicaID{uuid.NewString(), 0}
	spec := Spec{Name: "pvc-1", MinBytes: 8 * MiB, Replica: &r}
	place := "lvs0/" + r.LvolName()
	_, err := b.FindReplica(ctx, place)
	require.ErrorIs(t, err, ErrNotFound)
	v, err := b.Create(ctx, st, spec)
	require.NoError(t, err)
	again, err := b.Create(ctx, st, spec)
	require.NoError(t, err)
	assert.Equal(t, v.UUID, again.UUID)
	found, err := b.FindReplica(ctx, place)
	require.NoError(t, err)
	assert.Equal(t, v.UUID, found.UUID)

	require.ErrorIs(t, b.Delete(ctx, v.UUID), ErrWrongKind)
	_, err = b.Export(ctx, v.UUID, drivertest.Host("n1"))
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.Expand(ctx, v.UUID, 16*MiB, 0)
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.Clone(ctx, Origin{UUID: v.UUID}, Spec{Name: "copy", MinBytes: 8 * MiB})
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.Snapshot(ctx, "snap", v.UUID)
	require.ErrorIs(t, err, ErrWrongKind)
	ids, _, err := b.ListIDs(ctx, Page{})
	require.NoError(t, err)
	assert.Empty(t, ids)
	volumes, _, err := b.List(ctx, Page{})
	require.NoError(t, err)
	assert.Empty(t, volumes)
	listed, err := b.Inspect(ctx, nil)
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.Equal(t, KindReplica, listed[0].Kind)
	assert.Equal(t, r.Volume, listed[0].Source)

	only, err := b.HasOnlyHead(ctx, found, 4*MiB)
	require.NoError(t, err)
	assert.True(t, only, "nothing was written")
	require.NoError(t, b.AdmitReplica(ctx, v, 1, drivertest.Host("n1"), func(context.Context) error { return nil }))
	require.NoError(t, b.DeleteReplica(ctx, v))
	assert.Empty(t, b.state(t).Lvols)
	assert.Empty(t, b.state(t).Subsystems)

	plain := b.create(t, "pvc-2", 8)
	require.ErrorIs(t, b.DeleteReplica(ctx, plain), ErrWrongKind)
	_, err = b.FindReplica(ctx, "lvs0/pvc-2")
	require.ErrorIs(t, err, ErrWrongKind)
}
