package volume

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// While an lvstore is not loaded, no volume counts as absent, because the volume might be in that
// lvstore.
func TestVolumesInUnloadedStoreAreNotReportedAbsent(t *testing.T) {
	for name, configured := range map[string][]string{"lvstores configured": {"lvs0", "lvs1"}, "lvstores seen before": nil} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			target := b.Config
			target.Stores = configured
			s := NewTarget(target).Service(b.rpc)
			v := b.create(t, "pvc-1", 4)
			snap, err := b.Snapshot(t.Context(), "s", v.UUID)
			require.NoError(t, err)
			before := b.state(t)
			if configured == nil {
				_, err := s.Stores(t.Context())
				require.NoError(t, err)
			}
			b.detachDisk(t, "lvs0")
			for range 2 {
				for what, err := range map[string]error{
					"get":               errorOf(s.Get(t.Context(), v.UUID)),
					"delete":            s.Delete(t.Context(), v.UUID),
					"delete another":    s.Delete(t.Context(), uuid.NewString()),
					"delete a snapshot": s.DeleteSnapshot(t.Context(), snap.UUID, nil),
					"publish":           errorOf(s.Export(t.Context(), v.UUID, drivertest.Host("n1"))),
					"grow":              errorOf(s.Expand(t.Context(), v.UUID, 8*MiB, 0)),
					"snapshot":          errorOf(s.Snapshot(t.Context(), "t", v.UUID)),
					"find":              errorOf(s.Stores(t.Context())),
				} {
					require.ErrorIs(t, err, ErrStoreMissing, what)
					require.ErrorContains(t, err, "lvs0", what)
				}
			}
			b.attachDisk(t, "lvs0")
			assert.Equal(t, before, b.state(t))
			got, err := s.Get(t.Context(), v.UUID)
			require.NoError(t, err)
			assert.Equal(t, "pvc-1", got.Name)
			require.NoError(t, s.DeleteSnapshot(t.Context(), snap.UUID, nil))
			for range 2 {
				require.NoError(t, s.Delete(t.Context(), v.UUID))
			}
			assert.Empty(t, b.state(t).Lvols)
		})
	}
}

func errorOf[T any](_ T, err error) error { return err }

// A new lvstore does not replace an unloaded lvstore with the same name.
func TestNewLvstoreDoesNotReplaceItsNamesake(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	b.detachDisk(t, "lvs0")
	old := b.disks["lvs0"]
	b.makeStoreOn(t, "lvs0", t.TempDir()+"/new")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrStoreMissing)
	require.NoError(t, b.rpc.BdevLvolDeleteLvstore(t.Context(), spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new("lvs0")}))
	b.detachDisk(t, "lvs0")
	b.disks["lvs0"] = old
	b.attachDisk(t, "lvs0")
	require.NoError(t, b.Delete(t.Context(), v.UUID))
	assert.Empty(t, b.state(t).Lvols)
}

// If an lvstore is unloaded while one of its volumes is being deleted, the deletion fails, and the
// volume still exists when the lvstore is loaded again.
func TestDeleteFailsIfLvstoreIsUnloaded(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	cfg := b.Config
	cfg.Stores = []string{"lvs0", "lvs1"}
	s := NewTarget(cfg).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_delete", Before: func(context.Context, any) error {
		b.detachDisk(t, "lvs0")
		return nil
	}}))
	require.ErrorIs(t, s.Delete(t.Context(), v.UUID), ErrStoreMissing, "SPDK reports that the bdev does not exist")
	b.attachDisk(t, "lvs0")
	_, err := b.Get(t.Context(), v.UUID)
	require.NoError(t, err)
}

// A volume still exists even if SPDK cannot create its bdev.
func TestDegradedVolumeIsPresent(t *testing.T) {
	b := newTestService(t, export.TCP)
	ctx := context.WithoutCancel(t.Context())
	b.disks["external"] = b.newDisk(t, t.TempDir()+"/external", 4)
	b.attachDisk(t, "external")
	id, err := b.rpc.BdevLvolCloneBdev(ctx, spdkrpc.BdevLvolCloneBdevParams{Bdev: b.bdevUUID(t, "disk-external"), LvsName: "lvs1", CloneName: "pvc-1"})
	require.NoError(t, err)
	b.detachDisk(t, "lvs1")
	b.detachDisk(t, "external")
	b.attachDisk(t, "lvs1")

	stores, err := b.Stores(ctx)
	require.NoError(t, err)
	for range 2 {
		_, err = b.Find(ctx, stores, Spec{Name: "pvc-1"})
		require.ErrorIs(t, err, ErrDegraded, "it is not created again")
		require.ErrorIs(t, b.Delete(ctx, id), ErrDegraded)
		_, err = b.Export(ctx, id, drivertest.Host("n1"))
		require.ErrorIs(t, err, ErrDegraded)
	}
	list, _, err := b.List(ctx, Page{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, id, list[0].UUID)
	adverse, _, err := b.ListHealth(ctx, Page{})
	require.NoError(t, err)
	require.Len(t, adverse, 1)
	assert.Equal(t, id, adverse[0].UUID)
	assert.Equal(t, []string{"VolumeNotLoaded"}, reasons(adverse[0]))
	assert.True(t, adverse[0].Conditions[0].Inaccessible)
	_, err = b.Find(ctx, stores, Spec{Name: "pvc-2"})
	require.ErrorIs(t, err, ErrNotFound)

	require.NoError(t, b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: id}))
	_, err = b.Find(ctx, stores, Spec{Name: "pvc-1"})
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, b.Delete(ctx, id))
}

func (b *testService) bdevUUID(t *testing.T, name string) string {
	t.Helper()
	infos, err := b.rpc.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: &name})
	require.NoError(t, err)
	return infos[0].UUID
}
