package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// TestOperationsSurviveCrashes interrupts every operation at each of its calls, before and after
// the target executes it, with and without a crash of the caller, and then repeats the operation.
// The retry must succeed, and the target must end in the same state as after an uninterrupted
// operation.
func TestOperationsSurviveCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, op := range slices.Concat(operations, reads) {
			if tr == export.ISCSI && !op.exports {
				continue
			}
			t.Run(string(tr)+"/"+op.name, func(t *testing.T) {
				crashAll(t, op, func(t *testing.T) *testService { return newTestService(t, tr) })
			})
		}
	}
}

// TestOperationsSurviveFailedCalls is a fast subset of TestOperationsSurviveCrashes. At each call,
// either the caller dies or the target refuses the call.
func TestOperationsSurviveFailedCalls(t *testing.T) {
	drivertest.Serial(t)
	for _, op := range slices.Concat(operations, reads) {
		t.Run(op.name, func(t *testing.T) {
			crashBy(t, op, func(t *testing.T) *testService { return newTestService(t, export.TCP) },
				map[string]failure{"not executed, caller dies": {deadly: true}, "refused": {refused: true}})
		})
	}
}

// SPDK v26.09 and later respond with a different error if a subsystem does not exist.
func TestOperationsOnV2609SurviveCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	if os.Getenv("SPDK_SOCK") != "" {
		t.Skip("needs a simulated target of a given release; a real target has its own")
	}
	for _, op := range operations {
		if op.exports {
			t.Run(op.name, func(t *testing.T) {
				crashAll(t, op, func(t *testing.T) *testService {
					return newTestServiceOf(t, export.TCP, rpcschema.MustRelease("v26.09"))
				})
			})
		}
	}
}

type operation struct {
	name    string
	exports bool
	// prepare sets up the target and returns the operation.
	prepare func(t *testing.T, b *testService) func(ctx context.Context) (string, error)
	// vanished contains additional kinds of errors that the operation may return once if another
	// client deletes an object during the operation.
	vanished []error
}

var operations = []operation{
	{name: "create", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			stores, err := b.Stores(ctx)
			if err != nil {
				return "", err
			}
			spec := Spec{Name: "pvc-1", MinBytes: 5 * MiB}
			v, err := b.Find(ctx, stores, spec)
			if errors.Is(err, ErrNotFound) {
				v, err = b.Create(ctx, stores[0], spec)
			}
			return v.UUID, err
		}
	}},
	{name: "expand", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		return func(ctx context.Context) (string, error) {
			size, err := b.Expand(ctx, v.UUID, 9*MiB, 0)
			return fmt.Sprint(size), err
		}
	}},
	{name: "snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		return func(ctx context.Context) (string, error) {
			s, err := b.Snapshot(ctx, "snapshot-1", v.UUID)
			return s.UUID + s.CreatedAt.String(), err
		}
	}},
	{name: "restore, larger", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			c, err := b.Clone(ctx, Origin{UUID: s.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: b.largerBytes(t), Class: b.cloneClass(t)})
			return fmt.Sprint(c.UUID, c.SizeBytes), err
		}
	}},
	{name: "clone, larger", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		return func(ctx context.Context) (string, error) {
			c, err := b.Clone(ctx, Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: b.largerBytes(t), Class: b.cloneClass(t)})
			return fmt.Sprint(c.UUID, c.SizeBytes), err
		}
	}},
	{name: "delete", exports: true, vanished: []error{spdkrpc.InvalidParams}, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		drivertest.LegacyExport(t, b.rpc, b.Config.Config, v.UUID)
		return func(ctx context.Context) (string, error) { return "", b.Delete(ctx, v.UUID) }
	}},
	{name: "delete a snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) { return "", b.DeleteSnapshot(ctx, s.UUID, nil) }
	}},
	{name: "delete a clone", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		_, c := cloned(t, b)
		return func(ctx context.Context) (string, error) { return "", b.Delete(ctx, c.UUID) }
	}},
	{name: "delete a snapshot on one side of a clone", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, c := cloned(t, b)
		ids := snapshots(t, b, v, c)
		require.NoError(t, b.Delete(t.Context(), v.UUID))
		require.NoError(t, b.Delete(t.Context(), c.UUID))
		return func(ctx context.Context) (string, error) { return "", b.DeleteSnapshot(ctx, ids[0], nil) }
	}},
	{name: "delete a volume with snapshots on both sides of a clone", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, c := cloned(t, b)
		snapshots(t, b, v, c)
		return func(ctx context.Context) (string, error) { return "", b.Delete(ctx, v.UUID) }
	}},
	{name: "publish", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		return func(ctx context.Context) (string, error) {
			_, err := b.Export(ctx, v.UUID, drivertest.Host("n1"))
			return "", err
		}
	}},
	{name: "publish a volume exported by spdk-csi", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		drivertest.LegacyExport(t, b.rpc, b.Config.Config, v.UUID)
		return func(ctx context.Context) (string, error) {
			_, err := b.Export(ctx, v.UUID, drivertest.Host("n1"))
			return "", err
		}
	}},
	{name: "create, attach, detach", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		create := makers[0].make(t, b)
		return func(ctx context.Context) (string, error) { return attached(ctx, b, create) }
	}},
	{name: "clone, attach, detach", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		clone := makers[1].make(t, b)
		return func(ctx context.Context) (string, error) { return attached(ctx, b, clone) }
	}},
	{name: "unpublish", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
		require.NoError(t, err)
		_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			if err := b.Unexport(ctx, v.UUID, new(drivertest.Host("n1"))); err != nil {
				return "", err
			}
			if err := b.MarkUsed(ctx, v.UUID); err != nil {
				return "", err
			}
			v, err := b.Get(ctx, v.UUID)
			return v.Name, err
		}
	}},
}

// A failure is injected into one call of an operation.
type failure struct {
	refused, executed, deadly bool
}

func crashAll(t *testing.T, op operation, newTestService func(*testing.T) *testService) {
	crashBy(t, op, newTestService, map[string]failure{
		"not executed": {}, "not executed, caller dies": {deadly: true},
		"reply lost": {executed: true}, "reply lost, caller dies": {executed: true, deadly: true},
		"refused": {refused: true},
	})
}

// crashBy runs an operation once for each combination of its calls and failures, and injects the
// failure into the call.
func crashBy(t *testing.T, op operation, newTestService func(*testing.T) *testService, failures map[string]failure) {
	want, calls := undisturbed(t, op, newTestService)
	points := 0
	for at := 1; at <= calls; at++ {
		for name, f := range failures {
			points++
			if !t.Run(fmt.Sprintf("call %d %s", at, name), func(t *testing.T) { crash(t, newTestService(t), op, want, at, f) }) {
				return
			}
		}
	}
	t.Logf("%d crash points", points)
}

func crash(t *testing.T, b *testService, op operation, want state, at int, f failure) {
	do := op.prepare(t, b)
	b.seen.swept.Store(true) // prevents the sweep after the first deletion, which would hide errors
	if f.refused {
		b.fault.RefuseCall(at)
	} else {
		b.fault.FailCall(at, f.executed, f.deadly)
	}
	first, err := do(t.Context())
	failed := b.fault.FailedMethod()
	where := "failed at " + failed
	if failed == "" {
		return // a real target keeps its transports between tests, so the operation needs one call fewer
	}
	if f.deadly && changes(failed) { // the operation may succeed without its last read
		require.Error(t, err, where)
	}
	if err == nil {
		assert.Equal(t, want, anonymous(b.neededState(t)), "%s, but the operation succeeded", where)
	}
	if f.executed && !f.deadly && changes(failed) {
		require.NoError(t, err, "%s: reading back shows that the call was executed", where)
	}
	b.fault.Reset()
	id, again := do(t.Context())
	require.NoError(t, again, where)
	if err == nil {
		assert.Equal(t, first, id, where)
	}
	assert.Equal(t, want, anonymous(b.neededState(t)), where)
	cleanUp(t, b, where)
}

// undisturbed runs an operation without failures. It returns the resulting state of the target and
// the number of calls that the operation made.
func undisturbed(t *testing.T, op operation, newTestService func(*testing.T) *testService) (want state, calls int) {
	require.True(t, t.Run("undisturbed", func(t *testing.T) {
		b := newTestService(t)
		do := op.prepare(t, b)
		b.seen.swept.Store(true)
		b.fault.Reset()
		_, err := do(t.Context())
		require.NoError(t, err)
		calls = b.fault.Calls()
		want = anonymous(b.neededState(t))
		assert.Len(t, b.state(t).Lvols, len(want.Lvols), "no lvol is left that is not needed")
		cleanUp(t, b, "undisturbed")
	}))
	require.Positive(t, calls)
	return want, calls
}

// cloned returns a volume and a clone of it. v24.01 needs a class that permits the weak clear
// method.
func cloned(t *testing.T, b *testService) (v, c Volume) {
	t.Helper()
	v = b.create(t, "pvc-1", 4)
	c, err := b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: class.Class{Clear: class.ClearUnmap}})
	require.NoError(t, err)
	return v, c
}

// cloneClass returns a class that every release can clone. Releases before v24.05 cannot clear a
// clone's clusters.
func (b *testService) cloneClass(t *testing.T) class.Class {
	t.Helper()
	version, err := b.rpc.SpdkGetVersion(t.Context())
	require.NoError(t, err)
	if version.Fields.Major < 24 || version.Fields.Major == 24 && version.Fields.Minor < 5 {
		return class.Class{Clear: class.ClearUnmap}
	}
	return class.Class{}
}

// largerBytes returns the size for copies of 4 MiB volumes. On releases before v24.05, a copy
// cannot be larger than its source.
func (b *testService) largerBytes(t *testing.T) int64 {
	t.Helper()
	release, err := b.rpc.Release(t.Context())
	require.NoError(t, err)
	if !release.Has(rpcschema.GrowsBeyondParent) {
		return 4 * MiB
	}
	return 10 * MiB
}

func snapshots(t *testing.T, b *testService, of ...Volume) (ids []string) {
	t.Helper()
	for _, v := range of {
		s, err := b.Snapshot(t.Context(), "snapshot-of-"+v.Name, v.UUID)
		require.NoError(t, err)
		ids = append(ids, s.UUID)
	}
	return ids
}

// neededState returns the state without bases that have one clone. An interrupted deletion may
// leave such a base behind; it is later deleted together with its clone.
func (b *testService) neededState(t *testing.T) state {
	s := b.state(t)
	s.Lvols = slices.DeleteFunc(s.Lvols, func(alias string) bool {
		v, err := b.Target.Service(b.rpc).lookUp(context.Background(), alias)
		require.NoError(t, err)
		return isBase(v.Name) && len(v.Clones) == 1
	})
	return s
}

// anonymous replaces names and IDs that differ from one run to the next.
func anonymous(s state) state {
	for i, alias := range s.Lvols {
		s.Lvols[i] = alias[:min(10, len(alias))]
	}
	for i := range s.Subsystems {
		s.Subsystems[i] = "one"
	}
	for i := range s.Targets {
		s.Targets[i] = "one"
	}
	return s
}

// cleanUp deletes everything through the service, and requires the target to be empty after that.
func cleanUp(t *testing.T, b *testService, where string) {
	t.Helper()
	ctx := t.Context()
	volumes, _, err := b.List(ctx, Page{})
	require.NoError(t, err, where)
	for _, v := range volumes {
		require.NoError(t, b.Unexport(ctx, v.UUID, new(drivertest.Host("n1"))), where)
		// SPDK refuses to delete a subsystem during a state change, and expects the caller to
		// retry, as Kubernetes does.
		for err = b.Delete(ctx, v.UUID); errors.Is(err, ErrBusy) || errors.Is(err, spdkrpc.Busy); err = b.Delete(ctx, v.UUID) {
			t.Log(err)
		}
		require.NoError(t, err, where)
	}
	snapshots, _, err := b.ListSnapshots(ctx, "", Page{})
	require.NoError(t, err, where)
	for _, s := range snapshots {
		if s.Group != (GroupID{}) {
			require.NoError(t, b.DeleteGroup(ctx, s.Group, b.membersOf(t, s.Group), nil), where)
			continue
		}
		require.NoError(t, b.DeleteSnapshot(ctx, s.UUID, nil), where)
	}
	all, err := b.Inspect(ctx, nil)
	require.NoError(t, err, where)
	for _, l := range all {
		if l.Kind == KindReplica {
			require.NoError(t, b.DeleteReplica(ctx, Volume{UUID: l.UUID, Store: l.Store, Name: l.Name}), where)
		}
	}
	left := b.state(t)
	assert.Empty(t, left.Lvols, where)
	assert.Empty(t, left.Subsystems, where)
	assert.Empty(t, left.Targets, where)
	assert.LessOrEqual(t, left.Groups, 1, where) // the group of SPDK's spdk-csi remains
	for name, free := range left.Free {
		assert.Equal(t, b.store(t, name).TotalBytes/clusterMiB/MiB, free, where)
	}
}
