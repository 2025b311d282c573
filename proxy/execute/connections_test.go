package execute

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func TestConnectionsAreReused(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sim.Close()) })
	var c connections
	at := quiesce.Place{Socket: sim.Socket()}
	connect := func(at quiesce.Place) *quiesce.Target {
		to, err := c.connect(t.Context(), at)
		require.NoError(t, err)
		require.NoError(t, to.Caller.Call(t.Context(), "bdev_get_bdevs", nil, nil))
		return to
	}
	first, second := connect(at), connect(at)
	assert.NotSame(t, first.Caller, second.Caller, "concurrent operations use different connections")
	first.Reuse()
	require.NoError(t, second.Close())
	third := connect(at)
	assert.Same(t, first.Caller, third.Caller)

	third.Reuse()
	other := connect(quiesce.Place{Socket: at.Socket, PeerUIDs: []uint32{0}})
	assert.NotSame(t, first.Caller, other.Caller, "a connection whose peer was checked for different users is not reused")

	for _, gone := range []bool{true, false} { // whether the old connection has already been closed
		old := connect(at)
		old.Reuse()
		require.NoError(t, sim.Restart())
		if gone {
			require.Eventually(t, c.idle[0].ended, time.Minute, time.Millisecond)
		}
		fresh := connect(at)
		assert.NotSame(t, old.Caller, fresh.Caller, "a connection to the previous process is not reused")
		assert.NotEqual(t, old.Process, fresh.Process)
		require.NoError(t, fresh.Close())
	}

	connect(at).Reuse()
	kept := c.idle[0]
	c.drop(kept)
	assert.Empty(t, c.idle, "a connection that was idle too long is not reused")
	require.Error(t, kept.Caller.Call(t.Context(), "bdev_get_bdevs", nil, nil), "it is closed")
	c.drop(kept)

	connect(at).Reuse()
	sim.Crash()
	require.Eventually(t, c.idle[0].ended, time.Minute, time.Millisecond)
	_, err = c.connect(t.Context(), at)
	require.Error(t, err)
	assert.True(t, errors.Is(err, quiesce.ErrAway), err)
}
