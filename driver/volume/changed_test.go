package volume

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// after returns a service. Immediately after the service's first call of method, another client
// changes the target.
func (b *testService) after(t *testing.T, method string, change func(ctx context.Context) error) *Service {
	return NewTarget(b.Config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: b.fault, Method: method, After: func(ctx context.Context) {
		require.NoError(t, change(ctx))
	}}))
}

// deleteOnly deletes the lvols in lvs0 that match the predicate.
func (b *testService) deleteOnly(ctx context.Context, which func(spdkrpc.LvolInfo) bool) error {
	list, err := b.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	for _, l := range list {
		if err == nil && which(l) {
			err = b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: l.UUID})
		}
	}
	return err
}

// If another client immediately undoes the effect of a call, the call fails with ErrBusy, and a
// retry succeeds.
func TestConcurrentChangesFailAsBusy(t *testing.T) {
	t.Run("a created volume is deleted", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		s := b.after(t, "bdev_lvol_create", func(ctx context.Context) error {
			return b.deleteOnly(ctx, func(spdkrpc.LvolInfo) bool { return true })
		})
		spec := Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}}
		_, err := s.Create(t.Context(), b.store(t, "lvs0"), spec)
		require.ErrorIs(t, err, ErrBusy)
		_, err = s.Create(t.Context(), b.store(t, "lvs0"), spec)
		require.NoError(t, err)
	})
	t.Run("a snapshot is deleted", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		v := b.create(t, "pvc-1", 4)
		s := b.after(t, "bdev_lvol_snapshot", func(ctx context.Context) error {
			return b.deleteOnly(ctx, func(l spdkrpc.LvolInfo) bool { return l.IsSnapshot })
		})
		_, err := s.Snapshot(t.Context(), "snap-1", v.UUID)
		require.ErrorIs(t, err, ErrBusy)
		snap, err := s.Snapshot(t.Context(), "snap-1", v.UUID)
		require.NoError(t, err)
		assert.Equal(t, v.UUID, snap.SourceUUID)
	})
	t.Run("a clone is deleted", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		snap, err := b.Snapshot(t.Context(), "snap-1", b.create(t, "pvc-1", 4).UUID)
		require.NoError(t, err)
		s := b.after(t, "bdev_lvol_set_parent", func(ctx context.Context) error {
			return b.deleteOnly(ctx, func(l spdkrpc.LvolInfo) bool { return l.Name == LvolName("pvc-2") })
		})
		clone := func() (Volume, error) {
			return s.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
		}
		_, err = clone()
		require.ErrorIs(t, err, ErrBusy)
		_, err = clone()
		require.NoError(t, err)
	})
	t.Run("a grown volume is shrunk", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		v := b.create(t, "pvc-1", 4)
		s := b.after(t, "bdev_lvol_resize", func(ctx context.Context) error {
			return b.rpc.BdevLvolResize(ctx, spdkrpc.BdevLvolResizeParams{Name: v.UUID, SizeInMiB: 4})
		})
		_, err := s.Expand(t.Context(), v.UUID, 8*MiB, 0)
		require.ErrorIs(t, err, ErrBusy)
		size, err := s.Expand(t.Context(), v.UUID, 8*MiB, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 8*MiB, size)
	})
	t.Run("a volume is deleted before its snapshot", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		v := b.create(t, "pvc-1", 4)
		s := NewTarget(b.Config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_snapshot", Before: func(ctx context.Context, _ any) error {
			return b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: v.UUID})
		}}))
		_, err := s.Snapshot(t.Context(), "snap-1", v.UUID)
		require.ErrorIs(t, err, ErrBusy)
		_, err = s.Snapshot(t.Context(), "snap-1", v.UUID)
		require.ErrorIs(t, err, ErrNotFound)
	})
	t.Run("a volume is deleted before its export", func(t *testing.T) {
		b := newTestService(t, export.TCP)
		v := b.create(t, "pvc-1", 4)
		s := NewTarget(b.Config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: b.fault, Method: "nvmf_subsystem_add_ns", Before: func(ctx context.Context, _ any) error {
			return b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: v.UUID})
		}}))
		_, err := s.Export(t.Context(), v.UUID, drivertest.Host("n1"))
		require.ErrorIs(t, err, ErrNotFound)
	})
}

// deletions records the deleted lvols.
type deletions struct {
	spdkrpc.Caller
	deleted *[]string
}

func (d deletions) Call(ctx context.Context, method string, params, result any) error {
	if method == "bdev_lvol_delete" {
		text, err := json.Marshal(params)
		var p spdkrpc.BdevLvolDeleteParams
		if err = errors.Join(err, json.Unmarshal(text, &p)); err != nil {
			return err
		}
		*d.deleted = append(*d.deleted, p.Name)
	}
	return d.Caller.Call(ctx, method, params, result)
}

// A base that only the volume needs is deleted before the volume, so that after a crash between the
// two deletions, the remaining lvols can still be found from the volume. A base that a clone also
// needs is deleted after the volume.
func TestBasesAreDeletedInOrder(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	shared, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: baseName("pvc-2", v.UUID)})
	require.NoError(t, err)
	_, err = b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: shared, CloneName: LvolName("pvc-2")})
	require.NoError(t, err)
	own, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: baseName("pvc-3", v.UUID)})
	require.NoError(t, err)
	var deleted []string
	s := NewTarget(b.Config).Service(spdkrpc.NewClient(deletions{b.fault, &deleted}))
	require.NoError(t, s.Delete(t.Context(), v.UUID))
	assert.Equal(t, []string{own, v.UUID, shared}, deleted)
}
