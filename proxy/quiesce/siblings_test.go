package quiesce

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a snapshot has two clones, one of them exported, the snapshot must not be deleted while the
// other clone is being deleted. Otherwise, SPDK could see a single clone, and hand over the
// snapshot's clusters to this exported volume, which is not frozen.
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
