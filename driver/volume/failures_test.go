package volume

import (
	"context"
	"errors"
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

// refused returns the text of a refusal because of ErrInUse or ErrNoSpace as the result of an
// operation that is expected to be refused.
func refused(err error) (string, error) {
	if errors.Is(err, ErrInUse) || errors.Is(err, ErrNoSpace) {
		return err.Error(), nil
	}
	return "", err
}

// replicated creates a replica and returns its place.
func replicated(t *testing.T, b *testService) (v Volume, place string) {
	t.Helper()
	r := ReplicaID{uuid.NewSHA1(uuid.NameSpaceDNS, []byte("pvc-1")).String(), 0}
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 8 * MiB, Replica: &r})
	require.NoError(t, err)
	return v, "lvs0/" + r.LvolName()
}

// deeper contains operations on targets with several related objects.
var deeper = []operation{
	detaching,
	{name: "delete a snapshot with clones of clones", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		s, err := b.Snapshot(t.Context(), "snapshot-1", b.create(t, "pvc-1", 4).UUID)
		require.NoError(t, err)
		b.cloneOf(t, "pvc-3", b.restore(t, "pvc-2", s))
		return func(ctx context.Context) (string, error) { return refused(b.DeleteSnapshot(ctx, s.UUID, nil)) }
	}},
	{name: "delete a snapshot whose clones do not fit", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		b.DetachClones, b.Space.Reserve = true, 0.5
		v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 80 * MiB, Class: class.Class{Thick: true}})
		require.NoError(t, err)
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		b.restore(t, "pvc-2", s)
		return func(ctx context.Context) (string, error) { return refused(b.DeleteSnapshot(ctx, s.UUID, nil)) }
	}},
	{name: "delete a snapshot with clones in use", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		b.DetachClones = true
		v := b.create(t, "pvc-1", 4)
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		for _, x := range []Volume{v, b.restore(t, "pvc-2", s)} {
			_, err = b.Export(t.Context(), x.UUID, drivertest.Host("n1"))
			require.NoError(t, err)
		}
		return func(ctx context.Context) (string, error) { return refused(b.DeleteSnapshot(ctx, s.UUID, nil)) }
	}},
	{name: "take a group snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		sources := b.volumes(t, "pvc-1", "pvc-2")
		return func(ctx context.Context) (string, error) {
			g, err := b.SnapshotGroup(ctx, "group-1", sources)
			return g.ID.String(), err
		}
	}},
	{name: "take a group snapshot after an interrupted attempt", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		sources := b.volumes(t, "pvc-1", "pvc-2")
		half := newGroupID("group-1", time.Now(), 2, 1)
		_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: sources[0], SnapshotName: half.snapshotOf(sources[0])})
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			g, err := b.SnapshotGroup(ctx, "group-1", sources)
			return g.ID.String(), err
		}
	}},
	{name: "take a group snapshot again", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		sources := b.volumes(t, "pvc-1", "pvc-2")
		for hour := range 2 { // the reply to the first call was lost
			id := newGroupID("group-1", time.Now().Add(time.Duration(hour)*time.Hour), 2, 1)
			for _, source := range sources {
				_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: source, SnapshotName: id.snapshotOf(source)})
				require.NoError(t, err)
			}
		}
		return func(ctx context.Context) (string, error) {
			g, err := b.SnapshotGroup(ctx, "group-1", sources)
			return g.ID.String(), err
		}
	}},
	{name: "delete a group snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		sources := b.volumes(t, "pvc-1", "pvc-2")
		id := newGroupID("group-1", time.Now(), 2, 1)
		var members []string
		for _, source := range sources {
			member, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: source, SnapshotName: id.snapshotOf(source)})
			require.NoError(t, err)
			members = append(members, member)
		}
		return func(ctx context.Context) (string, error) { return "", b.DeleteGroup(ctx, id, members, nil) }
	}},
	{name: "export a replica", exports: true, vanished: []error{spdkrpc.InvalidParams}, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		_, place := replicated(t, b)
		return func(ctx context.Context) (string, error) {
			v, err := b.FindReplica(ctx, place)
			if err != nil {
				return "", err
			}
			if err := b.AdmitReplica(ctx, v, 1, drivertest.Host("n1"), func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			only, err := b.HasOnlyHead(ctx, v, 4*MiB)
			return fmt.Sprint(only), err
		}
	}},
	{name: "delete a replica", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, place := replicated(t, b)
		require.NoError(t, b.AdmitReplica(t.Context(), v, 1, drivertest.Host("n1"), func(context.Context) error { return nil }))
		return func(ctx context.Context) (string, error) {
			v, err := b.FindReplica(ctx, place)
			if err == nil {
				err = b.DeleteReplica(ctx, v)
			}
			return "", ignore(err, ErrNotFound)
		}
	}},
	{name: "remove an unneeded lvol", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, c := cloned(t, b)
		require.NoError(t, b.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: c.UUID}))
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		_, err = b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: s.UUID, CloneName: helperName("pvc-3")})
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			all, err := b.Inspect(ctx, nil)
			for _, l := range all {
				if err == nil && (l.Kind == KindInternal || l.Kind == KindHelper) {
					err = b.RemoveUnneeded(ctx, l.UUID)
				}
			}
			return "", err
		}
	}},
	{name: "take a snapshot that exists twice", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		for second := range int64(2) {
			_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: snapshotName("snapshot-1", v.UUID, time.Unix(1_800_000_000+second, 0))})
			require.NoError(t, err)
		}
		return func(ctx context.Context) (string, error) {
			s, err := b.Snapshot(ctx, "snapshot-1", v.UUID)
			return s.CreatedAt.String(), err
		}
	}},
	{name: "take a snapshot of spdk-csi again", vanished: []error{ErrIncompatible}, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		for _, name := range []string{"legacy-1", "legacy-2"} {
			_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: name})
			require.NoError(t, err)
		}
		return func(ctx context.Context) (string, error) {
			s, err := b.Snapshot(ctx, "legacy-1", v.UUID)
			return s.UUID + s.SourceUUID, err
		}
	}},
	{name: "create a volume with snapshots again", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		snapshots(t, b, v)
		return func(ctx context.Context) (string, error) {
			v, err := b.GetVolume(ctx, v.UUID)
			if err == nil {
				err = b.Matches(ctx, v, Spec{Name: "pvc-1", MinBytes: 4 * MiB}, Origin{})
			}
			return v.UUID, err
		}
	}},
	{name: "restore a snapshot to an unfinished clone", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		skipBeforeSetParent(t, b)
		v := b.create(t, "pvc-1", 8)
		s, err := b.Snapshot(t.Context(), "snapshot-1", v.UUID)
		require.NoError(t, err)
		b.create(t, "pvc-2", 4) // an interrupted call left it behind, before the source was expanded
		return func(ctx context.Context) (string, error) {
			c, err := b.Clone(ctx, Origin{UUID: s.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: class.Class{Clear: class.ClearWriteZeroes}})
			return fmt.Sprint(c.UUID, c.SizeBytes, c.Base), err
		}
	}},
	{name: "clone a volume with a shared base", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, _ := cloned(t, b)
		return func(ctx context.Context) (string, error) {
			c, err := b.Clone(ctx, Origin{UUID: v.UUID}, Spec{Name: "pvc-3", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
			return c.UUID, err
		}
	}},
	{name: "expand a volume with a snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		snapshots(t, b, v)
		larger := b.largerBytes(t)
		return func(ctx context.Context) (string, error) {
			size, err := b.Expand(ctx, v.UUID, larger, 0)
			return fmt.Sprint(size), err
		}
	}},
	{name: "limit and detach", exports: true, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
		require.NoError(t, err)
		_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			now, err := b.GetVolume(ctx, v.UUID)
			if err == nil {
				err = b.Limit(ctx, now, class.Limits{IOPS: new(uint64(10_000))})
			}
			if err == nil {
				err = b.Detach(ctx, v.UUID, nil)
			}
			return "", err
		}
	}},
}

// afterRestart makes a new service perform the operation, through a proxy that can freeze I/O. The
// new service has not seen the target yet.
func (op operation) afterRestart() operation {
	prepare := op.prepare
	op.prepare = func(t *testing.T, b *testService) func(context.Context) (string, error) {
		do := prepare(t, b)
		behindFreezer(b)
		return do
	}
	return op
}

// TestDeeperOperationsSurviveFailedCalls is like TestOperationsSurviveFailedCalls, but with
// operations of a newly started service on several related objects.
func TestDeeperOperationsSurviveFailedCalls(t *testing.T) {
	drivertest.Serial(t)
	for _, op := range deeper {
		t.Run(op.name, func(t *testing.T) {
			crashBy(t, op.afterRestart(), func(t *testing.T) *testService { return newTestService(t, export.TCP) },
				map[string]failure{"not executed, caller dies": {deadly: true}, "refused": {refused: true}})
		})
	}
}

// vanish deletes an lvol and its export, as another client may do at any time. It starts with the
// lvol at the given index. If SPDK refuses to delete an lvol, vanish tries the next lvol.
func (b *testService) vanish(t *testing.T, index int) (deleted Volume) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	all, err := b.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	for i := range all {
		l := all[(index+i)%len(all)]
		_ = b.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: export.NQN(l.UUID)})
		if b.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: l.UUID}) == nil {
			return volumeOf(l)
		}
	}
	return Volume{}
}

// If another client deletes an lvol before any call of an operation, the operation succeeds, or
// reports the missing lvol or the concurrent change. The retry succeeds or reports that the lvol
// does not exist. Then everything can be deleted.
func TestOperationsSurviveVanishingLvols(t *testing.T) {
	drivertest.Serial(t)
	for _, all := range [][]operation{operations, reads, deeper} {
		for _, op := range all {
			t.Run(op.name, func(t *testing.T) {
				op := op.afterRestart()
				newTestService := func(t *testing.T) *testService { return newTestService(t, export.TCP) }
				_, calls := undisturbed(t, op, newTestService)
				step := 1
				if testing.Short() {
					step = 2
				}
				for at := 1; at <= calls; at += step {
					t.Run(fmt.Sprint("before call ", at), func(t *testing.T) {
						b := newTestService(t)
						do := op.prepare(t, b)
						b.seen.swept.Store(true)
						var deleted Volume
						b.fault.BeforeCall(at, func() { deleted = b.vanish(t, at) })
						_, err := do(t.Context())
						where := b.fault.FailedMethod() + ", without " + deleted.Name
						b.fault.Reset()
						requireKind(t, err, where, append(op.vanished, ErrNotFound, ErrBusy)...)
						_, err = do(t.Context())
						requireKind(t, err, where, ErrNotFound)
						if isReplica(deleted.Name) {
							require.NoError(t, b.WithdrawReplica(t.Context(), deleted), where)
						} else if deleted.UUID != "" && !deleted.Snapshot {
							require.NoError(t, b.Unexport(t.Context(), deleted.UUID, nil), where)
							require.NoError(t, b.Delete(t.Context(), deleted.UUID), where) // deletes what is left of its export
						}
						cleanUp(t, b, where)
					})
				}
			})
		}
	}
}

// requireKind requires that err is nil, or names the target and is of one of the kinds.
func requireKind(t *testing.T, err error, where string, kinds ...error) {
	t.Helper()
	if err == nil {
		return
	}
	assert.ErrorContains(t, err, "target t0", where)
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return
		}
	}
	require.NoError(t, err, where)
}
