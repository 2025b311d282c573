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

// Consider a snapshot with two clones, one of them exported. It must not be deleted while the other
// clone is being deleted: SPDK could then see a single clone, and hand the snapshot's clusters to a
// volume that is not frozen.
func TestSnapshotIsNotDeletedConcurrentlyWithItsClone(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.snapshot("v0", "s0")
	_, err := b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: "lvs0/s0", CloneName: "c"})
	require.NoError(t, err)
	notPlainly := func() (<-chan struct{}, error) { return nil, errors.New("it is not deleted plainly") }
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
