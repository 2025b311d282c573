package volume

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestSnapshotIsTaken(t *testing.T) {
	b := newTestService(t, export.TCP)
	clock := time.Date(2026, 11, 21, 10, 0, 0, 123, time.UTC)
	b.Now = func() time.Time { clock = clock.Add(time.Hour); return clock }
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)

	first, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	assert.Equal(t, v.UUID, first.SourceUUID)
	assert.Equal(t, clock.Truncate(time.Second), first.CreatedAt)
	_, err = b.Snapshot(t.Context(), "snapshot-2", v.UUID)
	require.NoError(t, err)
	again, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	assert.Equal(t, first.UUID, again.UUID)
	assert.Equal(t, first.CreatedAt, again.CreatedAt, "hours later")
	_, err = b.Snapshot(t.Context(), "snapshot-1", other.UUID)
	require.ErrorIs(t, err, ErrIncompatible)
	_, err = b.Snapshot(t.Context(), "snapshot-3", first.UUID)
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.Snapshot(t.Context(), "snapshot-3", uuid.NewString())
	require.ErrorIs(t, err, ErrNotFound)

	require.ErrorIs(t, b.Delete(t.Context(), first.UUID), ErrWrongKind)
	require.ErrorIs(t, b.DeleteSnapshot(t.Context(), v.UUID, nil), ErrWrongKind)

	// After the source is deleted, its snapshots remain, and their names still contain the source's
	// UUID.
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	got, err := b.GetSnapshot(t.Context(), first.UUID)
	require.NoError(t, err)
	assert.Equal(t, v.UUID, got.SourceUUID)
	list, _, err := b.ListSnapshots(t.Context(), v.UUID, Page{})
	require.NoError(t, err)
	assert.Len(t, list, 2)
	for _, s := range list {
		for range 2 {
			require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
		}
	}
	require.NoError(t, b.Delete(t.Context(), other.UUID))
	cleanUp(t, b, "")
}

func TestSnapshotWithSeveralClonesIsNotDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	c, err := b.Clone(t.Context(), Origin{UUID: s.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	err = b.DeleteSnapshot(t.Context(), s.UUID, nil)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "PersistentVolume pvc-1, PersistentVolume pvc-2")
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
	require.NoError(t, b.Delete(t.Context(), c.UUID))
	cleanUp(t, b, "")
}

// Snapshots taken by SPDK's spdk-csi have plain names without source and time.
func TestLegacySnapshotsAreRecognized(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	id, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: "snapshot-1"})
	require.NoError(t, err)
	s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	assert.Equal(t, id, s.UUID)
	assert.Equal(t, v.UUID, s.SourceUUID)
	assert.Zero(t, s.CreatedAt)
	_, err = b.Snapshot(t.Context(), "snapshot-1", other.UUID)
	require.ErrorIs(t, err, ErrIncompatible)
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB})
	require.NoError(t, err, "the volume is still no copy")
	c, err := b.Clone(t.Context(), Origin{UUID: id, Snapshot: true}, Spec{Name: "pvc-3", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	require.NoError(t, b.Delete(t.Context(), c.UUID))
	require.NoError(t, b.DeleteSnapshot(t.Context(), id, nil))
	cleanUp(t, b, "")
}

// If SPDK does not return the ancestors of the volume, Snapshot does not return a snapshot taken by
// SPDK's spdk-csi.
func TestLegacySnapshotOfAnUnknownVolumeIsNotReturned(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	for _, name := range []string{"snapshot-1", "snapshot-2"} { // the volume's ancestors
		_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: name})
		require.NoError(t, err)
	}
	b.fault.Reset()
	s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
	require.NoError(t, err)
	for n := range b.fault.Calls() {
		b.fault.RefuseCall(n + 1)
		again, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		if err == nil {
			assert.Equal(t, s, again, "call %d failed", n+1)
		}
	}
	b.fault.Reset()
	cleanUp(t, b, "")
}

// A bdev counts as a logical volume only if SPDK describes it as a logical volume, including the
// name of the lvstore.
func TestOnlyLogicalVolumesAreVolumes(t *testing.T) {
	s := &Service{Target: &Target{}}
	lvol := spdkrpc.BdevDriverSpecific{Lvol: &spdkrpc.BdevDriverLvol{}}
	for name, b := range map[string]spdkrpc.BdevInfo{
		"another bdev":              {Aliases: []string{"lvs0/pvc-1"}},
		"another bdev, no aliases":  {},
		"an lvol without aliases":   {DriverSpecific: lvol},
		"an lvol without its store": {DriverSpecific: lvol, Aliases: []string{"pvc-1"}},
	} {
		_, err := s.volume(b)
		require.ErrorIs(t, err, ErrWrongKind, name)
	}
}

func TestCloneWithAnotherOriginIsRefused(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	fromV := Origin{UUID: v.UUID}
	spec := Spec{Name: "clone", MinBytes: 4 * MiB, Class: b.cloneClass(t)}
	c, err := b.Clone(t.Context(), fromV, spec)
	require.NoError(t, err)
	s, err := b.Snapshot(t.Context(), "of-the-clone", c.UUID)
	require.NoError(t, err)
	again, err := b.Clone(t.Context(), fromV, spec)
	require.NoError(t, err, "its own snapshot does not hide its origin")
	assert.Equal(t, c.UUID, again.UUID)
	for name, from := range map[string]Origin{"another volume": {UUID: other.UUID}, "a snapshot": {UUID: s.UUID, Snapshot: true}} {
		_, err = b.Clone(t.Context(), from, spec)
		require.ErrorIs(t, err, ErrIncompatible, name)
	}
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), spec)
	require.ErrorIs(t, err, ErrIncompatible, "not as an empty volume")
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB})
	require.NoError(t, err, "the source was created empty, although it has a parent now")
	_, err = b.Clone(t.Context(), Origin{UUID: v.UUID, Snapshot: true}, spec)
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.Clone(t.Context(), Origin{UUID: uuid.NewString()}, spec)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = b.Clone(t.Context(), fromV, Spec{Name: "small", MinBytes: 1, MaxBytes: 3 * MiB})
	require.ErrorIs(t, err, ErrOutOfRange)
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
}

// A base is deleted as soon as it is unneeded, whatever the order of deletions, and even if several
// clones share the base.
func TestUnneededBasesAreDeleted(t *testing.T) {
	for name, order := range map[string][]int{"source first": {0, 1, 2, 3}, "source last": {1, 2, 3, 0}, "mixed": {2, 0, 3, 1}, "reverse": {3, 2, 1, 0}} {
		for lvols, shared := range map[int]bool{6: true, 7: false} {
			t.Run(fmt.Sprintf("%s, shared: %t", name, shared), func(t *testing.T) {
				b := newTestService(t, export.TCP)
				v := b.create(t, "pvc-0", 4)
				if b.UncountedWrites = !shared; shared && v.Allocated == nil {
					t.Skip("this release does not count a volume's clusters")
				}
				chain := []Volume{v}
				for i, from := range []int{0, 0, 1} {
					c, err := b.Clone(t.Context(), Origin{UUID: chain[from].UUID}, Spec{Name: "clone-" + string(rune('a'+i)), MinBytes: 4 * MiB, Class: b.cloneClass(t)})
					require.NoError(t, err)
					chain = append(chain, c)
				}
				assert.Len(t, b.state(t).Lvols, lvols)
				list, _, err := b.ListSnapshots(t.Context(), "", Page{})
				require.NoError(t, err)
				assert.Empty(t, list, "bases are not listed")
				for _, i := range order {
					require.NoError(t, b.Delete(t.Context(), chain[i].UUID))
				}
				cleanUp(t, b, name)
			})
		}
	}
}

// The snapshots of a volume and of its clone remain after both volumes are deleted, and the base
// remains until one of the snapshots is deleted.
func TestBasesBelowSnapshotsAreDeleted(t *testing.T) {
	for name, order := range map[string][]int{"source's first": {0, 1}, "clone's first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			v, c := cloned(t, b)
			ids := snapshots(t, b, v, c)
			require.NoError(t, b.Delete(t.Context(), v.UUID))
			require.NoError(t, b.Delete(t.Context(), c.UUID))
			assert.Len(t, b.state(t).Lvols, 3)
			require.NoError(t, b.DeleteSnapshot(t.Context(), ids[order[0]], nil))
			assert.Len(t, b.state(t).Lvols, 1, "the other snapshot")
			require.NoError(t, b.DeleteSnapshot(t.Context(), ids[order[1]], nil))
			cleanUp(t, b, name)
		})
	}
}

// If a clone is never created, its base remains until the source and the source's snapshots are
// deleted.
func TestBaseOfFailedCloneIsDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: baseName("pvc-2", v.UUID)})
	require.NoError(t, err)
	ids := snapshots(t, b, v)
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	require.NoError(t, b.DeleteSnapshot(t.Context(), ids[0], nil))
	assert.Empty(t, b.state(t).Lvols)
}

// Earlier versions of the driver left behind bases without clones. The first deletion also removes
// such bases.
func TestOrphanedBasesAreDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: baseName("pvc-3", v.UUID)})
	require.NoError(t, err)
	require.NoError(t, b.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: v.UUID}))
	require.NoError(t, b.Delete(t.Context(), other.UUID))
	assert.Empty(t, b.state(t).Lvols)
}

// A base below a volume is not deleted while a host may be writing to the volume.
func TestBaseOfVolumeInUseIsKept(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, c := cloned(t, b)
	_, err := b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
	require.NoError(t, err)
	require.NoError(t, b.Delete(t.Context(), c.UUID))
	assert.Len(t, b.state(t).Lvols, 2)
	require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	assert.Empty(t, b.state(t).Lvols)
}

func TestListsArePaged(t *testing.T) {
	b := newTestService(t, export.TCP)
	for i := range 7 {
		b.create(t, "pvc-"+string(rune('a'+i)), 4)
	}
	all, next, err := b.List(t.Context(), Page{})
	require.NoError(t, err)
	assert.Empty(t, next)
	require.Len(t, all, 7)
	var got []Volume
	for page := (Page{Max: 3}); ; page.After = next {
		var part []Volume
		part, next, err = b.List(t.Context(), page)
		require.NoError(t, err)
		got = append(got, part...)
		if next == "" {
			break
		}
		require.Len(t, part, 3)
		require.NoError(t, b.Delete(t.Context(), part[0].UUID)) // the next page is not affected
		require.NoError(t, b.Delete(t.Context(), next))
	}
	assert.Equal(t, all, got)
}

func TestPristineVolumesAreRecognized(t *testing.T) {
	b := newTestService(t, export.TCP)
	of := func(v Volume) (pristine, known bool) {
		v, err := b.Get(t.Context(), v.UUID)
		require.NoError(t, err)
		pristine, known, err = b.Pristine(t.Context(), v)
		require.NoError(t, err)
		return pristine, known
	}
	v := b.create(t, "pvc-1", 4)
	if v.Allocated == nil {
		t.Skip("this release does not count a volume's clusters")
	}
	for _, name := range []string{"never written", "one snapshot", "two snapshots"} {
		pristine, known := of(v)
		assert.True(t, pristine && known, name)
		_, err := b.Snapshot(t.Context(), name, v.UUID)
		require.NoError(t, err)
	}
	c, err := b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "clone", MinBytes: 4 * MiB})
	require.NoError(t, err)
	pristine, known := of(c)
	assert.True(t, !pristine && known, "a copy is not pristine, even of an empty volume")
	pristine, known = of(v)
	assert.True(t, pristine && known)
	thick, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "thick", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	_, known = of(thick)
	assert.False(t, known)
	v.Allocated = new(uint64(1))
	pristine, known, err = b.Pristine(t.Context(), v)
	require.NoError(t, err)
	assert.True(t, !pristine && known)
}

// A failed sweep is repeated at the next deletion. A successful sweep is not.
func TestSweepIsRepeatedAfterAFailure(t *testing.T) {
	b := newTestService(t, export.TCP)
	for _, tt := range []struct {
		failing int // index of the call that fails; 0 for none
		sweeps  bool
	}{{1, true}, {2, true}, {0, true}, {0, false}} {
		b.fault.FailCall(tt.failing, false, true)
		b.sweepOnce(t.Context())
		assert.Equal(t, tt.sweeps, b.fault.Calls() > 0, "%+v", tt)
	}
	b.fault.Reset()
}
