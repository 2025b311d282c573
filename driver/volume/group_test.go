package volume

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// volumes creates volumes and returns their UUIDs.
func (b *testService) volumes(t *testing.T, names ...string) (ids []string) {
	t.Helper()
	for _, name := range names {
		ids = append(ids, b.create(t, name, 4).UUID)
	}
	return ids
}

// membersOf lists the members of a group that exist.
func (b *testService) membersOf(t *testing.T, id GroupID) (uuids []string) {
	t.Helper()
	list, _, err := b.Target.Service(b.rpc).ListSnapshots(context.Background(), "", Page{})
	require.NoError(t, err)
	for _, s := range list {
		if s.Group == id {
			uuids = append(uuids, s.UUID)
		}
	}
	return uuids
}

func uuidsOf(g Group) (ids []string) {
	for _, s := range g.Snapshots {
		ids = append(ids, s.UUID)
	}
	return ids
}

func TestGroupSnapshotIsTakenOnOneTarget(t *testing.T) {
	b := newTestService(t, export.TCP)
	f := behindFreezer(b)
	clock := time.Date(2026, 11, 21, 10, 0, 0, 123, time.UTC)
	var ticking sync.Mutex // targets are read in parallel
	b.Now = func() time.Time {
		ticking.Lock()
		defer ticking.Unlock()
		clock = clock.Add(time.Hour)
		return clock
	}
	sources := b.volumes(t, "pvc-1", "pvc-2", "pvc-3")
	for _, id := range sources[:2] {
		_, err := b.Export(t.Context(), id, drivertest.MultipathHost("n1"))
		require.NoError(t, err)
	}
	first, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	require.Len(t, f.requests, 3, "in one call")
	require.Len(t, first.Snapshots, 3)
	for _, s := range first.Snapshots {
		assert.Contains(t, sources, s.SourceUUID)
		assert.Equal(t, first.ID, s.Group)
		assert.Equal(t, clock.Truncate(time.Second), s.CreatedAt)
		assert.LessOrEqual(t, len(s.Name), nameMax)
	}
	parsed, ok := ParseGroupID(first.ID.String())
	assert.True(t, ok)
	assert.Equal(t, first.ID, parsed)

	again, err := b.SnapshotGroup(t.Context(), "group-1", []string{sources[2], sources[0], sources[1]})
	require.NoError(t, err)
	assert.Equal(t, first, again, "hours later, in another order")
	_, err = b.SnapshotGroup(t.Context(), "group-1", sources[:2])
	require.ErrorIs(t, err, ErrIncompatible)
	second, err := b.SnapshotGroup(t.Context(), "group-2", sources[:2])
	require.NoError(t, err)
	_, err = b.SnapshotGroup(t.Context(), "group-3", []string{sources[0], uuid.NewString()})
	require.ErrorIs(t, err, ErrNotFound)
	_, err = b.SnapshotGroup(t.Context(), "group-3", []string{sources[0], first.Snapshots[0].UUID})
	require.ErrorIs(t, err, ErrWrongKind)
	_, err = b.SnapshotGroup(t.Context(), "group-3", make([]string, MaxGroup+1))
	require.ErrorIs(t, err, ErrNotTogether)

	got, err := b.GetGroup(t.Context(), first.ID, uuidsOf(first))
	require.NoError(t, err)
	assert.Equal(t, uuidsOf(first), uuidsOf(got))
	for name, ids := range map[string][]string{
		"one too few": uuidsOf(first)[1:], "another group's": append(uuidsOf(first), uuidsOf(second)...), "a volume": append(uuidsOf(first), sources[0]),
	} {
		_, err = b.GetGroup(t.Context(), first.ID, ids)
		require.ErrorIs(t, err, ErrMismatch, name)
		require.ErrorIs(t, b.DeleteGroup(t.Context(), first.ID, ids, nil), ErrMismatch, name)
	}
	single, err := b.Snapshot(t.Context(), "group-1", sources[0])
	require.NoError(t, err, "names of groups and of snapshots are independent")
	assert.Empty(t, single.Group)
	require.ErrorIs(t, b.DeleteSnapshot(t.Context(), first.Snapshots[0].UUID, nil), ErrMember)

	clone, err := b.Clone(t.Context(), Origin{UUID: first.Snapshots[0].UUID, Snapshot: true}, Spec{Name: "restored", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	require.ErrorIs(t, b.DeleteGroup(t.Context(), first.ID, uuidsOf(first), nil), ErrInUse)
	assert.Len(t, b.membersOf(t, first.ID), 3, "none was deleted")
	require.NoError(t, b.Delete(t.Context(), clone.UUID))
	for range 2 {
		require.NoError(t, b.DeleteGroup(t.Context(), first.ID, uuidsOf(first), nil))
	}
	_, err = b.GetGroup(t.Context(), first.ID, uuidsOf(first))
	require.ErrorIs(t, err, ErrNotFound)
	for _, id := range sources[:2] {
		require.NoError(t, b.Unexport(t.Context(), id, nil))
	}
	cleanUp(t, b, "")
}

// A proxy without spdkgate_lvol_snapshot cannot freeze several volumes together, even if no volume
// is in use.
func TestOldProxyCannotFreezeGroups(t *testing.T) {
	b := newTestService(t, export.TCP)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	_, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.ErrorIs(t, err, ErrNotTogether)
	require.NotErrorIs(t, err, spdkrpc.MethodNotFound, "the remedy for this error depends on SPDK's release")
	assert.ErrorContains(t, err, "upgrade spdk-proxy")
	assert.Len(t, b.state(t).Lvols, 2)
}

func TestUnfreezableGroupsAreRefused(t *testing.T) {
	b := newTestService(t, export.TCP)
	if b.sim == nil {
		t.Skip("needs a simulated target: in this test, no host connects to a real target")
	}
	f := behindFreezer(b)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	h := drivertest.MultipathHost("n1")
	for _, id := range sources {
		_, err := b.Export(t.Context(), id, h)
		require.NoError(t, err)
	}
	require.NoError(t, b.sim.ConnectHost(export.NQN(sources[0]), h.Multipath))
	require.NoError(t, b.sim.ConnectHost(export.NQN(sources[1]), h.NQN))
	_, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "nvme_core.multipath=Y")
	assert.Empty(t, f.requests)
	f.fails = &spdkrpc.Error{Method: "spdkgate_lvol_snapshot", Kind: spdkrpc.InUse, Code: -32009}
	_, err = b.SnapshotGroup(t.Context(), "group-1", sources[:1])
	require.ErrorIs(t, err, spdkrpc.InUse, "iSCSI, for example")
}

// A group never contains snapshots from different times. Leftovers of an interrupted attempt are
// deleted, not completed.
func TestIncompleteGroupsAreNotCompleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	behindFreezer(b)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	half := newGroupID("group-1", time.Now(), 2, 1)
	left, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: sources[0], SnapshotName: half.snapshotOf(sources[0])})
	require.NoError(t, err)
	_, err = b.GetGroup(t.Context(), half, []string{left})
	require.ErrorIs(t, err, ErrNotFound)
	g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	assert.NotEqual(t, half, g.ID)
	assert.NotContains(t, uuidsOf(g), left)
	assert.Len(t, b.state(t).Lvols, 4, "nothing of the first attempt is left")

	// A snapshot with a clone is not deleted, because a caller has already received the group.
	other := newGroupID("group-2", time.Now(), 2, 1)
	left, err = b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: sources[0], SnapshotName: other.snapshotOf(sources[0])})
	require.NoError(t, err)
	_, err = b.Clone(t.Context(), Origin{UUID: left, Snapshot: true}, Spec{Name: "restored", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	_, err = b.SnapshotGroup(t.Context(), "group-2", sources)
	require.ErrorIs(t, err, ErrInUse)
	assert.Equal(t, []string{left}, b.membersOf(t, other))
	cleanUp(t, b, "")
}

// After a lost reply, the target may still execute the first call when the caller has already
// repeated it. The group that callers have received remains valid.
func TestRepeatedGroupSnapshotCreatesOnlyOneGroup(t *testing.T) {
	b := newTestService(t, export.TCP)
	f := behindFreezer(b)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	take := func(id GroupID) {
		for _, source := range sources {
			_, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: source, SnapshotName: id.snapshotOf(source)})
			require.NoError(t, err)
		}
	}
	g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	take(newGroupID("group-1", time.Now().Add(-time.Hour), 2, 1)) // taken with a clock that is behind
	again, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	assert.Equal(t, g.ID, again.ID)

	// Another controller takes the same group concurrently, so this controller deletes its own
	// snapshots.
	rival := newGroupID("group-2", time.Now(), 2, 1)
	b.Service = b.Target.Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: f, Method: "spdkgate_lvol_snapshot", After: func(context.Context) { take(rival) }}))
	_, err = b.SnapshotGroup(t.Context(), "group-2", sources)
	require.ErrorIs(t, err, ErrBusy)
	got, err := b.SnapshotGroup(t.Context(), "group-2", sources)
	require.NoError(t, err)
	assert.Equal(t, rival, got.ID)
	cleanUp(t, b, "")
}

// Whichever RPC of a call fails, and however it fails, a retry takes or deletes one complete group
// and leaves nothing else behind.
func TestGroupOperationsSurviveCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	for name, prepare := range map[string]func(t *testing.T, b *testService, sources []string) func(context.Context) (GroupID, error){
		"take": func(_ *testing.T, b *testService, sources []string) func(context.Context) (GroupID, error) {
			return func(ctx context.Context) (GroupID, error) {
				g, err := b.SnapshotGroup(ctx, "group-1", sources)
				return g.ID, err
			}
		},
		"delete": func(t *testing.T, b *testService, sources []string) func(context.Context) (GroupID, error) {
			g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
			require.NoError(t, err)
			return func(ctx context.Context) (GroupID, error) {
				return GroupID{}, b.DeleteGroup(ctx, g.ID, uuidsOf(g), nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			try := func(t *testing.T, at int, f failure) (calls int) {
				b := newTestService(t, export.TCP)
				behindFreezer(b)
				b.seen.swept.Store(true)
				do := prepare(t, b, b.volumes(t, "pvc-1", "pvc-2", "pvc-3"))
				if f.refused {
					b.fault.RefuseCall(at)
				} else {
					b.fault.FailCall(at, f.executed, f.deadly)
				}
				first, err := do(t.Context())
				calls = b.fault.Calls()
				b.fault.Reset()
				again, repeated := do(t.Context())
				require.NoError(t, repeated)
				if err == nil {
					assert.Equal(t, first, again)
				}
				assert.Len(t, b.state(t).Lvols, map[string]int{"take": 6, "delete": 3}[name], "%v", err)
				cleanUp(t, b, name)
				return calls
			}
			calls := 0
			require.True(t, t.Run("undisturbed", func(t *testing.T) { calls = try(t, 0, failure{}) }))
			require.Greater(t, calls, 10)
			points := 0
			for at := 1; at <= calls; at++ {
				for how, f := range map[string]failure{
					"not executed": {}, "not executed, caller dies": {deadly: true},
					"reply lost": {executed: true}, "reply lost, caller dies": {executed: true, deadly: true},
					"refused": {refused: true},
				} {
					points++
					t.Run(fmt.Sprintf("call %d %s", at, how), func(t *testing.T) { try(t, at, f) })
				}
			}
			t.Logf("%d crash points", points)
		})
	}
}

// If only the reply is lost, reading back finds the group.
func TestLostReplyOfAGroupSnapshotIsReadBack(t *testing.T) {
	b := newTestService(t, export.TCP)
	f := behindFreezer(b)
	sources := b.volumes(t, "pvc-1", "pvc-2")
	b.Service = b.Target.Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: f, Method: "spdkgate_lvol_snapshot", LoseReply: true}))
	g, err := b.SnapshotGroup(t.Context(), "group-1", sources)
	require.NoError(t, err)
	assert.Len(t, g.Snapshots, 2)
	assert.Len(t, b.state(t).Lvols, 4)
}

// SnapshotGroup takes a group snapshot of volumes on one target.
func (b *testService) SnapshotGroup(ctx context.Context, name string, sources []string) (Group, error) {
	return TakeGroup(ctx, name, []Members{{b.Service, sources}}, noOthers)
}

func (b *testService) GetGroup(ctx context.Context, id GroupID, ids []string) (Group, error) {
	return GetGroup(ctx, id, []Members{{b.Service, ids}})
}

func (b *testService) DeleteGroup(ctx context.Context, id GroupID, ids []string, claim Claim) error {
	return DeleteGroup(ctx, id, []Members{{b.Service, ids}}, claim)
}

func noOthers() ([]Members, error) { return nil, nil }
