package volume

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// usedState returns a volume and the results of Pristine.
func (b *testService) usedState(t *testing.T, id string) (v Volume, pristine, known bool) {
	t.Helper()
	v, err := b.GetVolume(t.Context(), id)
	require.NoError(t, err)
	pristine, known, err = b.Pristine(t.Context(), v)
	require.NoError(t, err)
	return v, pristine, known
}

// MarkUsed records that a volume has been used, as Detach does.
func (s *Service) MarkUsed(ctx context.Context, id string) error {
	v, err := s.unmarked(ctx, id)
	if err != nil || v == nil {
		return err
	}
	return s.markUsed(ctx, *v)
}

func TestUsedVolumeIsRenamed(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			spec := Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}}
			v, err := b.Create(t.Context(), b.store(t, "lvs0"), spec)
			require.NoError(t, err)
			_, _, known := b.usedState(t, v.UUID)
			require.False(t, known, "the volume may be formatted")
			_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
			require.NoError(t, err)
			for range 2 { // repeatable, and possible while the volume is exported
				require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
			}
			now, pristine, known := b.usedState(t, v.UUID)
			assert.True(t, known && !pristine, "it must no longer be formatted")
			assert.Equal(t, "pvc-1.used", now.Name)
			_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
			require.NoError(t, err, "still exported")

			stores, err := b.Stores(t.Context())
			require.NoError(t, err)
			found, err := b.Find(t.Context(), stores, Spec{Name: "pvc-1"})
			require.NoError(t, err)
			assert.Equal(t, v.UUID, found.UUID)
			require.NoError(t, b.Matches(t.Context(), found, spec, Origin{}), "a repeated CreateVolume finds it")
			size, err := b.Expand(t.Context(), v.UUID, 8*MiB, 0)
			require.NoError(t, err)
			assert.EqualValues(t, 8*MiB, size)

			require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n1"))))
			b.detachDisk(t, "lvs0")
			b.attachDisk(t, "lvs0")
			_, pristine, known = b.usedState(t, v.UUID)
			assert.True(t, known && !pristine, "also after a restart of the target")

			// Snapshots and clones of a used volume have their own names.
			snap, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
			require.NoError(t, err)
			assert.Equal(t, v.UUID, snap.SourceUUID)
			c, err := b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: b.cloneClass(t)})
			require.NoError(t, err)
			assert.Equal(t, "pvc-2", c.Name)
			require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
			require.NoError(t, b.Delete(t.Context(), v.UUID))
			require.NoError(t, b.MarkUsed(t.Context(), v.UUID), "the volume is deleted")
			require.NoError(t, b.MarkUsed(t.Context(), snap.UUID), "a snapshot is never attached")
			require.NoError(t, b.Delete(t.Context(), c.UUID))
			require.NoError(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil))
		})
	}
}

// An administrator can rename a volume that was attached but never staged, so that it can be
// formatted.
func TestUsedVolumeCanBeRenamed(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
	require.NoError(t, b.rpc.BdevLvolRename(t.Context(), spdkrpc.BdevLvolRenameParams{OldName: "lvs0/pvc-1.used", NewName: "pvc-1"}))
	_, _, known := b.usedState(t, v.UUID)
	assert.False(t, known, "the volume may be formatted")
}

// A thin volume keeps its name if the target counts its clusters. Otherwise, the name records that
// the volume has been used.
func TestThinVolumeIsRenamedOnlyIfClustersAreNotCounted(t *testing.T) {
	for _, release := range []string{"", "v24.01"} {
		t.Run(release, func(t *testing.T) {
			var r rpcschema.Release
			if release != "" {
				r = rpcschema.MustRelease(release)
			}
			b := newTestServiceOf(t, export.TCP, r)
			v := b.create(t, "pvc-1", 4)
			require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
			now, pristine, known := b.usedState(t, v.UUID)
			require.True(t, known)
			if v.Allocated != nil {
				assert.Equal(t, "pvc-1", now.Name)
				assert.True(t, pristine, "it was never written to")
			} else {
				assert.Equal(t, "pvc-1.used", now.Name)
				assert.False(t, pristine)
			}
		})
	}
}

// Names are limited to 63 bytes, because SPDK damages longer names and then cannot load the
// lvstore.
func TestUsedNamesHaveAtMost63Bytes(t *testing.T) {
	long := strings.Repeat("x", nameMax)
	for _, name := range []string{"pvc-1", long[:58], long[:59], long, long[:62] + "y", "snap.x", "base.x", "x.used", "ä"} {
		lvol := LvolName(name)
		used := usedName(lvol)
		assert.LessOrEqual(t, len(used), nameMax)
		assert.True(t, Volume{Name: used}.used())
		assert.False(t, Volume{Name: lvol}.used(), lvol)
		assert.NotEqual(t, lvol, used)
	}
	assert.NotEqual(t, usedName(long), usedName(long[:62]+"y"))
	b := newTestService(t, export.TCP)
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: long, MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
	b.detachDisk(t, "lvs0")
	b.attachDisk(t, "lvs0")
	stores, err := b.Stores(t.Context())
	require.NoError(t, err)
	found, err := b.Find(t.Context(), stores, Spec{Name: long})
	require.NoError(t, err)
	assert.Equal(t, v.UUID, found.UUID)
}

// If volumes with both names exist, the driver uses neither. Only another client can create such a
// pair of volumes.
func TestNoVolumeIsChosenIfBothNamesExist(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	require.NoError(t, b.MarkUsed(t.Context(), v.UUID))
	second, err := b.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(false)})
	require.NoError(t, err, "SPDK permits it")
	stores, err := b.Stores(t.Context())
	require.NoError(t, err)
	_, err = b.Find(t.Context(), stores, Spec{Name: "pvc-1"})
	require.ErrorIs(t, err, ErrIncompatible)
	require.ErrorContains(t, b.MarkUsed(t.Context(), second), "pvc-1.used")
}
