package volume

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// newDetachingService returns a service that detaches clones, a thick volume that contains data,
// and a snapshot of that volume.
func newDetachingService(t *testing.T) (b *testService, v Volume, s Snapshot) {
	t.Helper()
	b = newTestService(t, export.TCP)
	behindFreezer(b)
	b.DetachClones = true
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 20 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	s, err = b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	return b, v, s
}

func (b *testService) restore(t *testing.T, name string, from Snapshot) Volume {
	t.Helper()
	c, err := b.Clone(t.Context(), Origin{UUID: from.UUID, Snapshot: true}, Spec{Name: name, MinBytes: from.SizeBytes, Class: b.cloneClass(t)})
	require.NoError(t, err)
	return c
}

func (b *testService) get(t *testing.T, v Volume) Volume {
	t.Helper()
	now, err := b.Get(t.Context(), v.UUID)
	require.NoError(t, err)
	return now
}

func TestClonesAreDetached(t *testing.T) {
	b, v, s := newDetachingService(t)
	c, d := b.restore(t, "pvc-2", s), b.restore(t, "pvc-3", s)
	_, err := b.Export(t.Context(), c.UUID, drivertest.MultipathHost("n1"))
	require.NoError(t, err)
	var claimed []string
	claim := func(id string) error { claimed = append(claimed, id); return nil }
	for range 2 {
		require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, claim))
	}
	assert.ElementsMatch(t, []string{v.UUID, d.UUID}, claimed, "the exported one takes over the snapshot's clusters")
	for _, x := range []Volume{v, c, d} {
		now := b.get(t, x)
		assert.Empty(t, now.Base)
		if now.Allocated != nil {
			assert.EqualValues(t, 5, *now.Allocated, "each has its own copy")
		}
	}
	require.NoError(t, b.Unexport(t.Context(), c.UUID, nil))
	cleanUp(t, b, "")
}

func TestUndetachableClonesAreRefused(t *testing.T) {
	b, v, s := newDetachingService(t)
	c := b.restore(t, "pvc-2", s)
	refused := func(kind error, text string) {
		t.Helper()
		before := b.state(t)
		err := b.DeleteSnapshot(t.Context(), s.UUID, nil)
		require.ErrorIs(t, err, kind)
		assert.ErrorContains(t, err, text)
		assert.Equal(t, before, b.state(t), "nothing changed")
	}
	b.DetachClones = false
	refused(ErrInUse, "PersistentVolume pvc-1, PersistentVolume pvc-2")
	b.DetachClones = true

	for _, x := range []Volume{v, c} {
		_, err := b.Export(t.Context(), x.UUID, drivertest.MultipathHost("n1"))
		require.NoError(t, err)
	}
	refused(ErrInUse, "is exported")
	for _, x := range []Volume{v, c} {
		require.NoError(t, b.Unexport(t.Context(), x.UUID, nil))
	}

	busy := errors.New("claimed by another call")
	require.ErrorIs(t, b.DeleteSnapshot(t.Context(), s.UUID, func(string) error { return busy }), busy)

	// SPDK loses data if it decouples several volumes concurrently.
	b.detaching.Lock()
	refused(ErrBusy, "clones of another snapshot are being detached")
	b.detaching.Unlock()

	filler, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "filler", MinBytes: b.store(t, "lvs0").FreeBytes - 8*MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	refused(ErrNoSpace, "free in addition to its reserve: delete the claims of some of these instead: PersistentVolume pvc-1, PersistentVolume pvc-2")
	require.NoError(t, b.Delete(t.Context(), filler.UUID))

	// A later snapshot of the same volume is also a clone of the first snapshot. The later snapshot
	// is read-only, so it cannot be detached; instead, it receives the first snapshot's clusters. A
	// snapshot can have only one later snapshot as a clone.
	_, err = b.Snapshot(t.Context(), "snapshot-2", v.UUID)
	require.NoError(t, err)
	third, err := b.Snapshot(t.Context(), "snapshot-3", c.UUID)
	require.NoError(t, err)
	refused(ErrInUse, "is a snapshot itself")
	require.NoError(t, b.DeleteSnapshot(t.Context(), third.UUID, nil))
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
	assert.Empty(t, b.get(t, c).Base)
	cleanUp(t, b, "")
}

// SPDK reads beyond the end of a list when it detaches a clone that is larger than its snapshot.
func TestEnlargedClonesAreNotDetached(t *testing.T) {
	b, v, s := newDetachingService(t)
	if b.largerBytes(t) == 4*MiB {
		t.Skip("this release cannot grow a volume that has a snapshot below it")
	}
	c, d := b.restore(t, "pvc-2", s), b.restore(t, "pvc-3", s)
	for _, x := range []Volume{c, v} {
		_, err := b.Expand(t.Context(), x.UUID, 40*MiB, 0)
		require.NoError(t, err)
	}
	before := b.state(t)
	err := b.DeleteSnapshot(t.Context(), s.UUID, nil)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "was enlarged")
	assert.Equal(t, before, b.state(t))
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	var claimed []string
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, func(id string) error { claimed = append(claimed, id); return nil }))
	assert.Equal(t, []string{d.UUID}, claimed, "the enlarged one takes over the snapshot's clusters")
	assert.Empty(t, b.get(t, c).Base)
	cleanUp(t, b, "")
}

// Deleting a group snapshot detaches the clones of its members, but not the clones of snapshots
// from an interrupted attempt.
func TestGroupClonesAreDetached(t *testing.T) {
	b := newTestService(t, export.TCP)
	behindFreezer(b)
	b.DetachClones = true
	sources := b.volumes(t, "pvc-1", "pvc-2")
	g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	c := b.restore(t, "restored", g.Snapshots[0].Snapshot)
	var claimed []string
	require.NoError(t, b.DeleteGroup(t.Context(), g.ID, uuidsOf(g), func(id string) error { claimed = append(claimed, id); return nil }))
	assert.Len(t, claimed, 1, "the other clone takes over the snapshot's clusters without copies")
	assert.Empty(t, b.get(t, c).Base)

	half := newGroupID("group-2", time.Now(), 2, 1)
	left, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: sources[0], SnapshotName: half.snapshotOf(sources[0])})
	require.NoError(t, err)
	_, err = b.Clone(t.Context(), Origin{UUID: left, Snapshot: true}, Spec{Name: "known", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	_, err = b.SnapshotGroup(t.Context(), "group-2", sources)
	require.ErrorIs(t, err, ErrInUse)
	cleanUp(t, b, "")
}

func TestDetachingSurvivesCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	crashAll(t, detaching, func(t *testing.T) *testService { return newTestService(t, export.TCP) })
}

var detaching = operation{name: "delete a snapshot with clones", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
	b.DetachClones = true
	v := b.create(t, "pvc-1", 20)
	s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	b.restore(t, "pvc-2", s)
	b.restore(t, "pvc-3", s)
	return func(ctx context.Context) (string, error) { return "", b.DeleteSnapshot(ctx, s.UUID, nil) }
}}
