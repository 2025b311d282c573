package controller

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/request"
)

// With replicaSpread, the replicas are on servers with different values of the label, even if most
// servers have the same value. Servers without the label get no replica.
func TestReplicasAreSpreadByALabel(t *testing.T) {
	rack := func(value string) config.Target { return config.Target{Labels: map[string]string{"rack": value}} }
	b := newReplicatedControllerOf(t, config.Config{Nodes: []config.Target{rack("1"), rack("1"), rack("1"), rack("1"), rack("2"), {}}})
	req := func(i int, parameters map[string]string) *csi.CreateVolumeRequest {
		r := b.request(fmt.Sprint("pvc-", i), 9*mib)
		r.Parameters = parameters
		return r
	}
	for i := range 8 {
		v, err := b.createFrom(t.Context(), req(i, map[string]string{"replicas": "2", "replicaSpread": "rack"}))
		require.NoError(t, err)
		id, err := request.ParseVolumeID(v.GetVolumeId())
		require.NoError(t, err)
		places := b.witnesses.records[id.UUID].Places
		servers := []string{places[0].Server, places[1].Server}
		assert.Contains(t, servers, "t4")
		assert.NotContains(t, servers, "t5")
	}
	resp, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"replicas": "2", "replicaSpread": "rack"}})
	require.NoError(t, err)
	assert.Positive(t, resp.GetAvailableCapacity())
	before := len(b.witnesses.records)
	for text, parameters := range map[string]map[string]string{
		`all suitable storage servers have rack=1`:  {"replicaSpread": "rack", "target": "t0,t1"},
		`target t5 has no label "rack"`:             {"replicaSpread": "rack", "target": "t0,t5"},
		`the class allows no suitable storage serv`: {"replicaSpread": "zone"},
	} {
		parameters["replicas"] = "2"
		_, err := b.createFrom(t.Context(), req(9, parameters))
		require.ErrorIs(t, err, class.ErrParameter, text)
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "Nothing was created")
	}
	assert.Len(t, b.witnesses.records, before)
}
