package node

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The health of a replicated volume names the step of its recovery. Without a healer, the state of
// the replicas is unknown and not reported.
func TestHealthNamesTheStateOfTheReplicas(t *testing.T) {
	r := newReplicatedNode(t)
	health := func(id string) (reported map[string]string) {
		resp, err := r.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: id})
		require.NoError(t, err)
		reported = map[string]string{}
		for _, h := range resp.GetVolumeHealth().GetHealthStatuses() {
			assert.Equal(t, csi.VolumeHealthErrorType_DEGRADED, h.GetStatus())
			reported[h.GetReason()] = h.GetMessage()
		}
		return reported
	}
	assert.Empty(t, health(replicatedID), "not on this node")
	r.stageVolume(t)
	r.pass(t, time.Second)
	assert.Empty(t, health(replicatedID))

	r.w.up = [2]bool{}
	r.write(1)
	r.pass(t, 10*time.Second)
	require.Len(t, health(replicatedID), 1)
	assert.Contains(t, health(replicatedID)["ReplicaProblem"], "writes are waiting for a server")
	assert.Empty(t, health(volID), "another volume")
	assert.Empty(t, health("no volume id"))

	r.w.up[0] = true
	r.pass(t, time.Minute)
	require.Len(t, health(replicatedID), 1)
	assert.Contains(t, health(replicatedID)["ReplicaMissing"], "works with one replica: ")

	r.w.up[1] = true
	rebuilding := false
	for range 120 {
		r.pass(t, time.Second)
		if text, ok := health(replicatedID)["ReplicaRebuilding"]; ok {
			rebuilding = true
			assert.Equal(t, "a replica is being rebuilt: 0 of 1 regions are done; the volume works with the other one", text)
		}
	}
	assert.True(t, rebuilding)
	assert.Empty(t, health(replicatedID))

	r.Node = r.f.node() // without a healer
	assert.Empty(t, health(replicatedID))
}
