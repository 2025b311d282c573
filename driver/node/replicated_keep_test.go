package node

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// The server with the only current replica is lost together with the node. An administrator keeps
// the other replica, and the volume continues with the data of that replica. When the lost server
// returns, its replica is overwritten in full.
func TestKeptReplicaOverwritesTheDiscardedOne(t *testing.T) {
	r := newReplicatedNode(t)
	r.stageVolume(t)
	require.Equal(t, 50, r.write(50))
	r.w.up[1] = false
	require.Zero(t, r.write(50))
	r.pass(t, 10*time.Second)
	require.Equal(t, 80, r.write(80))
	require.Equal(t, replica.SetOf(0), r.w.record.Witness.InSync)

	r.w.up = [2]bool{false, true}
	r.w.running, r.w.connected, r.w.held = false, [2]bool{}, nil
	r.restart()
	before := r.stageRequest(false)
	_, err := r.NodeStageVolume(t.Context(), before)
	require.ErrorIs(t, err, mirror.ErrWait)
	w, err := r.w.record.Witness.Publish("").Keep(1) // as the controller does
	require.NoError(t, err)
	r.w.record.Witness = w
	_, err = r.NodeStageVolume(t.Context(), before)
	require.ErrorIs(t, err, mirror.ErrRefused, "the publication is over")
	r.unstageVolume(t)

	r.w.marks = map[int]bool{}          // a start formats the log if it covers no replica
	r.w.acked = maps.Clone(r.w.data[1]) // the administrator accepts the loss of all other writes
	r.w.record.Witness = w.Publish(nodeA)
	r.stageVolume(t)
	require.Equal(t, 20, r.write(20))
	r.pass(t, time.Minute)
	require.Equal(t, replica.SetOf(0), r.w.record.Witness.Discarded)
	r.w.up[0] = true
	r.pass(t, 2*time.Minute)
	r.equal(t)
	assert.Zero(t, r.w.record.Witness.Discarded)
	assert.NotContains(t, r.w.data[0], 79, "the discarded data is overwritten")
	r.unstageVolume(t)
}
