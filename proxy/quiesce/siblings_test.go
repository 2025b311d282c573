package quiesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a snapshot has two clones, one of them exported, the snapshot must not be deleted while the
// other clone is being deleted. Otherwise, SPDK could see only one clone, and hand over the
// snapshot's clusters to the exported volume, which is not frozen.
func TestSnapshotIsNotDeletedConcurrentlyWithItsClone(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.snapshot("v0", "s0")
	_, err := b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: "lvs0/s0", CloneName: "c"})
	require.NoError(t, err)
	notPlainly := func() (<-chan struct{}, error) { return nil, errors.New("Delete does not call plain") }
	_, err = b.q.Delete(t.Context(), "lvs0/c", Mode{}, func() (<-chan struct{}, error) {
		settled, err := b.plainly("c")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, other := b.q.Delete(ctx, "lvs0/s0", Mode{Freeze: true}, notPlainly)
		require.Error(t, other)
		return settled, err
	})
	require.NoError(t, err)
	require.True(t, b.exists("s0"))
	frozen, err := b.q.Delete(t.Context(), "lvs0/s0", Mode{Freeze: true}, notPlainly)
	require.NoError(t, err)
	assert.True(t, frozen)
}

var errReached = errors.New("the operation would now call SPDK")

// A relatedOperation runs a function instead of its call to SPDK, and changes nothing.
type relatedOperation struct {
	name              string
	exclusive, shared []string // volumes that SPDK changes, and volumes whose place in the chain SPDK uses
	run               func(ctx context.Context, q *Quiescer, during func()) error
}

func relatedOperations() (all []relatedOperation) {
	call := func(during func()) Call {
		return func() (<-chan struct{}, error) { during(); return nil, errReached }
	}
	clones := map[string][]string{"old": {"s"}, "s": {"v", "c"}}
	ancestors := map[string][]string{"s": {"old"}, "v": {"s", "old"}, "c": {"s", "old"}}
	for _, volume := range []string{"old", "s", "v", "c"} {
		all = append(all,
			relatedOperation{"delete " + volume, append([]string{volume}, clones[volume]...), ancestors[volume][:min(1, len(ancestors[volume]))],
				func(ctx context.Context, q *Quiescer, during func()) error {
					_, err := q.Delete(ctx, "lvs0/"+volume, Mode{}, call(during))
					return err
				}},
			relatedOperation{"another call on " + volume, nil, []string{volume}, func(ctx context.Context, q *Quiescer, during func()) error {
				release, err := q.Share(ctx, []string{"lvs0/" + volume})
				if err != nil {
					return err
				}
				defer release()
				during()
				return errReached
			}})
	}
	for _, volume := range []string{"v", "c"} {
		all = append(all,
			relatedOperation{"snapshot " + volume, []string{volume, "new " + volume}, ancestors[volume][:1], func(ctx context.Context, q *Quiescer, during func()) error {
				_, err := q.Take(ctx, []Snapshot{{Volume: "lvs0/" + volume, Name: "new-" + volume}}, Mode{Wait: func(context.Context) error { during(); return errReached }})
				return err
			}},
			relatedOperation{"inflate " + volume, []string{volume, "filling"}, ancestors[volume], func(ctx context.Context, q *Quiescer, during func()) error {
				return q.WhileUnused(ctx, "lvs0/"+volume, nil, true, Mode{}, call(during))
			}})
	}
	return all
}

// SPDK can lose a volume, or crash, if two operations on related volumes overlap. The test uses a
// snapshot, its child snapshot, and two volumes based on the child. Two operations on them run
// concurrently only if neither changes anything that the other uses.
func TestOperationsOnRelatedVolumesDoNotOverlap(t *testing.T) {
	b := newBench(t, "v26.05")
	b.q.lockTimeout = 20 * time.Millisecond
	b.volume("v")
	b.snapshot("v", "old")
	b.snapshot("v", "s")
	_, err := b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: "lvs0/s", CloneName: "c"})
	require.NoError(t, err)
	uses := func(a, b relatedOperation) bool {
		return slices.ContainsFunc(a.exclusive, func(v string) bool { return slices.Contains(b.exclusive, v) || slices.Contains(b.shared, v) })
	}
	for _, first := range relatedOperations() {
		ran := false
		require.Error(t, first.run(t.Context(), b.q, func() {
			ran = true
			for _, second := range relatedOperations() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if second.exclusive == nil {
					ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
				}
				reached := false
				require.Error(t, second.run(ctx, b.q, func() { reached = true }), second.name)
				cancel()
				assert.Equal(t, !uses(first, second) && !uses(second, first), reached, fmt.Sprintf("%s during %s", second.name, first.name))
			}
		}), first.name)
		require.True(t, ran, first.name)
	}
}
