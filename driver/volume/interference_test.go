package volume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// through returns a service of the same target that makes its calls through a caller.
func (b *testService) through(c spdkrpc.Caller) *Service {
	return b.Target.Service(spdkrpc.NewClient(c))
}

// If a disk that contains an lvstore is not visible, it is unknown which lvstores can be used, so
// no volume has a known problem.
func TestOverviewNeedsTheDisksOfLvstores(t *testing.T) {
	b := newTestService(t, export.TCP)
	_, err := b.through(&drivertest.FirstCall{Caller: b.fault, Method: "bdev_get_bdevs", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Kind: spdkrpc.NoSuchDevice, Message: "hidden"}
	}}).Overview(t.Context())
	require.ErrorIs(t, err, ErrStoreMissing)
	_, err = b.Overview(t.Context())
	require.NoError(t, err)
}

// A detachment with an unknown outcome counts as done only if the clone no longer has the snapshot
// as its parent.
func TestUnknownOutcomeOfADetachmentIsReadBack(t *testing.T) {
	fail := func(kind spdkrpc.Kind) func(context.Context, any) error {
		return func(context.Context, any) error { return &spdkrpc.Error{Kind: kind, Message: "injected failure"} }
	}
	for name, c := range map[string]struct {
		before func(context.Context, any) error
		delete bool
		fails  bool
	}{
		"executed":     {nil, false, false},
		"not executed": {fail(spdkrpc.OutcomeUnknown), false, true},
		"denied":       {fail(spdkrpc.Denied), false, true},
		"deleted":      {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, v, s := newDetachingService(t)
			parent := b.get(t, s.Volume)
			clone := b.get(t, b.restore(t, "pvc-2", s))
			require.Equal(t, parent.Name, clone.Base)
			err := b.through(&drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_decouple_parent", LoseReply: true, Before: c.before, After: func(ctx context.Context) {
				if c.delete {
					require.NoError(t, b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: clone.UUID}))
				}
			}}).decouple(t.Context(), clone, parent)
			if c.fails {
				require.ErrorContains(t, err, "injected failure")
				assert.Equal(t, parent.Name, b.get(t, clone).Base)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, parent.Name, b.get(t, v).Base, "the other clone keeps its parent")
		})
	}
}

// A clone is not detached if it was exported, or if another call began to use it, after it was
// selected.
func TestCloneInUseSinceItsSelectionIsNotDetached(t *testing.T) {
	b, v, s := newDetachingService(t)
	clones := []Volume{v, b.restore(t, "pvc-2", s)}
	exportBoth := func(string) error {
		for _, c := range clones {
			if _, err := b.Export(t.Context(), c.UUID, drivertest.MultipathHost("n1")); err != nil {
				return err
			}
		}
		return nil
	}
	err := b.DeleteSnapshot(t.Context(), s.UUID, exportBoth)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "is exported")
	for _, c := range clones {
		assert.NotEmpty(t, b.get(t, c).Base, "nothing was detached")
		require.NoError(t, b.Unexport(t.Context(), c.UUID, nil))
	}
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
}

// A list omits a volume that another client deletes after it was listed.
func TestVolumesDeletedDuringAListAreOmitted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	s, err := b.Snapshot(t.Context(), "snapshot-1", other.UUID)
	require.NoError(t, err)
	kept, err := b.Snapshot(t.Context(), "snapshot-2", other.UUID)
	require.NoError(t, err)
	deleted := func(id string) *Service {
		return b.after(t, "bdev_lvol_get_lvols", func(ctx context.Context) error {
			return b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: id})
		})
	}
	volumes, _, err := deleted(v.UUID).List(t.Context(), Page{})
	require.NoError(t, err)
	require.Len(t, volumes, 1)
	assert.Equal(t, other.UUID, volumes[0].UUID)
	snapshots, _, err := deleted(s.UUID).ListSnapshots(t.Context(), "", Page{})
	require.NoError(t, err)
	require.Len(t, snapshots, 1)
	assert.Equal(t, kept.UUID, snapshots[0].UUID)
}

// If limits are changed back immediately, or SPDK refuses to change them, Limit fails.
func TestLimitsThatAreNotInEffectAreReported(t *testing.T) {
	if realtarget.Given() {
		t.Skip("needs a simulated target of a given release; a real target has its own")
	}
	refused := func(context.Context, any) error {
		return &spdkrpc.Error{Kind: spdkrpc.Failed, Code: -32603, Message: "refused"}
	}
	for name, c := range map[string]struct {
		old   class.Limits
		call  *drivertest.FirstCall
		kind  error
		text  string
		reset bool
	}{
		"changed back":           {call: &drivertest.FirstCall{}, reset: true, kind: ErrBusy, text: "but differ now"},
		"refused":                {call: &drivertest.FirstCall{Before: refused}, kind: spdkrpc.Failed, text: "limit the I/O of"},
		"other limits in effect": {old: class.Limits{IOPS: new(uint64(5000))}, call: &drivertest.FirstCall{Before: refused}, kind: ErrBusy, text: "take effect when it is attached"},
		"lost reply":             {call: &drivertest.FirstCall{LoseReply: true}},
		"denied": {call: &drivertest.FirstCall{Before: func(context.Context, any) error { return &spdkrpc.Error{Kind: spdkrpc.Denied} }},
			kind: spdkrpc.Denied, text: "limit the I/O of"},
	} {
		t.Run(name, func(t *testing.T) {
			// Later releases refuse to change the limits of a volume that no host uses.
			b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease("v24.01"))
			v := b.create(t, "pvc-1", 4)
			require.NoError(t, b.Limit(t.Context(), v, c.old))
			v = b.get(t, v)
			c.call.Caller, c.call.Method = b.fault, "bdev_set_qos_limit"
			if c.reset {
				c.call.After = func(ctx context.Context) {
					require.NoError(t, b.rpc.BdevSetQoSLimit(ctx, spdkrpc.BdevSetQoSLimitParams{Name: v.UUID, RWIOsPerSec: new(uint64(0))}))
				}
			}
			want := class.Limits{IOPS: new(uint64(2000))}
			err := b.through(c.call).Limit(t.Context(), v, want)
			if c.kind == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
			require.NoError(t, b.Limit(t.Context(), b.get(t, v), want), "the retry")
		})
	}
}

// A replica counts as unwritten only if the target reports that it has no clusters beyond its head.
func TestOnlyProvenUnwrittenReplicasHaveOnlyAHead(t *testing.T) {
	b := newTestService(t, export.TCP)
	cluster := b.store(t, "lvs0").ClusterBytes
	v := Volume{Name: "r", Store: "lvs0", Thin: true, Allocated: new(uint64(2))}
	for name, c := range map[string]struct {
		change func(v *Volume)
		head   int64
		want   bool
	}{
		"head only":         {func(*Volume) {}, 2 * cluster, true},
		"one cluster more":  {func(*Volume) {}, 2*cluster - 1, false},
		"thick":             {func(v *Volume) { v.Thin = false }, 2 * cluster, false},
		"uncounted":         {func(v *Volume) { v.Allocated = nil }, 2 * cluster, false},
		"data in a parent":  {func(v *Volume) { v.Base = "snapshot" }, 2 * cluster, false},
		"nothing allocated": {func(v *Volume) { v.Allocated = new(uint64(0)) }, cluster, true},
	} {
		v := v
		c.change(&v)
		got, err := b.HasOnlyHead(t.Context(), v, c.head)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	v.Store = "missing"
	got, err := b.HasOnlyHead(t.Context(), v, 2*cluster)
	require.ErrorIs(t, err, ErrStoreMissing)
	assert.False(t, got)
}

// A rival takes half of a group snapshot again after each deletion.
type rival struct {
	spdkrpc.Caller
	again func(ctx context.Context)
}

func (r rival) Call(ctx context.Context, method string, params, result any) error {
	err := r.Caller.Call(ctx, method, params, result)
	if method == "bdev_lvol_delete" {
		r.again(ctx)
	}
	return err
}

// If another call keeps taking the same group snapshot, the call gives up after a few attempts.
func TestGroupThatAnotherCallIsTakingIsBusy(t *testing.T) {
	b := newTestService(t, export.TCP)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	taken := 0
	half := func(ctx context.Context) {
		id := newGroupID("group-1", b.Now(), 2, 1)
		_, err := b.rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: sources[0], SnapshotName: id.snapshotOf(sources[0])})
		require.NoError(t, err)
		taken++
	}
	half(t.Context())
	s := b.through(rival{b.fault, half})
	_, err := TakeGroup(t.Context(), "group-1", []Members{{s, sources}}, noOthers)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "another call is taking group snapshot")
	assert.Equal(t, 4, taken, "the first, and one after each of three attempts")
	assert.Len(t, b.state(t).Lvols, 3, "this call has taken no snapshot")
	behindFreezer(b)
	g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err, "without the rival")
	assert.Len(t, g.Snapshots, 2)
	assert.Len(t, b.state(t).Lvols, 4, "the leftovers are deleted")
}
