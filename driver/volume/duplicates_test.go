package volume

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// at returns the service of another controller. Its clock shows the given second.
func (b *testService) at(second int64, caller spdkrpc.Caller) *Service {
	c := b.Config
	c.Now = func() time.Time { return time.Unix(1_800_000_000+second, 0) }
	return NewTarget(c).Service(spdkrpc.NewClient(caller))
}

// If the reply to a snapshot call is lost, and the target executes the call only while the caller
// repeats it, one snapshot remains.
func TestLostSnapshotReplyLeavesOneSnapshot(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	var late any
	lost := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_snapshot", Before: func(_ context.Context, params any) error {
		late = params
		return &spdkrpc.Error{Method: "bdev_lvol_snapshot", Kind: spdkrpc.OutcomeUnknown}
	}}
	_, err := b.at(0, lost).Snapshot(t.Context(), "s", v.UUID)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	again := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_snapshot", Before: func(ctx context.Context, _ any) error {
		return b.fault.Call(ctx, "bdev_lvol_snapshot", late, new(string))
	}}
	got, err := b.at(1, again).Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)
	all, _, err := b.ListSnapshots(t.Context(), "", Page{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, all[0].UUID, got.UUID)
	assert.Equal(t, int64(1_800_000_000), got.CreatedAt.Unix(), "the older one remains")
	cleanUp(t, b, "")
}

// If another controller takes a snapshot with the same name after this controller has looked for
// one, both controllers return the same snapshot, no matter whether the other controller's clock is
// ahead, behind or equal.
func TestTwoControllersProduceOneSnapshot(t *testing.T) {
	for name, second := range map[string]int64{"ahead": 60, "behind": -60, "equal": 0} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			v := b.create(t, "pvc-1", 4)
			var first Snapshot
			rival := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_snapshot", Before: func(ctx context.Context, _ any) (err error) {
				first, err = b.at(second, b.fault).Snapshot(ctx, "s", v.UUID)
				return err
			}}
			got, err := b.at(0, rival).Snapshot(t.Context(), "s", v.UUID)
			require.NoError(t, err)
			assert.Equal(t, first, got)
			for _, s := range []*Service{b.at(0, b.fault), b.at(second, b.fault)} {
				got, err = s.Snapshot(t.Context(), "s", v.UUID)
				require.NoError(t, err)
				assert.Equal(t, first, got)
			}
			all, _, err := b.ListSnapshots(t.Context(), "", Page{})
			require.NoError(t, err)
			assert.Len(t, all, 1)
		})
	}
}

func TestTwoControllersTakeSnapshotsOfTwoVolumes(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, w := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	var first Snapshot
	rival := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_snapshot", Before: func(ctx context.Context, _ any) (err error) {
		first, err = b.at(1, b.fault).Snapshot(ctx, "s", w.UUID)
		return err
	}}
	_, err := b.at(0, rival).Snapshot(t.Context(), "s", v.UUID)
	require.ErrorIs(t, err, ErrBusy)
	_, err = b.Snapshot(t.Context(), "s", v.UUID)
	require.ErrorIs(t, err, ErrIncompatible)
	all, _, err := b.ListSnapshots(t.Context(), "", Page{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, first.UUID, all[0].UUID)
}

// Many concurrent controllers with different clocks agree on one snapshot.
func TestManyControllersProduceOneSnapshot(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	const controllers = 8
	ids := make([]string, controllers)
	var wg sync.WaitGroup
	for i := range controllers {
		wg.Go(func() {
			s := b.at(int64(i), b.fault)
			for {
				got, err := s.Snapshot(t.Context(), "s", v.UUID)
				if err == nil {
					ids[i] = got.UUID
					return
				}
				// All other errors are retryable, for example if SPDK refuses two operations at the
				// same time.
				if t.Context().Err() != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	all, _, err := b.ListSnapshots(t.Context(), "", Page{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, id := range ids {
		assert.Equal(t, all[0].UUID, id)
	}
}
