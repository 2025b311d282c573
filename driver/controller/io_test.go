package controller

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The metrics include the I/O of each published volume, labeled with its PersistentVolumeClaim.
func TestMetricsContainVolumeIO(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	b.withCredentials(t)
	m := metrics.New("test")
	b.Observe(m)
	scrape := func() string {
		b.measureIO(t.Context())
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		return w.Body.String()
	}
	req := b.request("pvc-1", 8*mib)
	req.Parameters = map[string]string{request.KeyClaim: "data", request.KeyClaimNamespace: "team", "csi.storage.k8s.io/pv/name": "pvc-1"}
	resp, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := resp.GetVolume()
	assert.NotContains(t, scrape(), "spdk_csi_volume_", "it is not published")
	for _, node := range []string{nodeA, nodeA} {
		_, err = b.publish(t.Context(), v, node)
		require.NoError(t, err)
	}
	series := `{lvol="pvc-1",namespace="team",persistentvolumeclaim="data",target="t0",volume="` + v.GetVolumeId()[len("t0:"):] + `"}`
	text := scrape()
	for _, name := range []string{"read_bytes", "written_bytes", "unmapped_bytes", "reads", "writes", "unmaps", "read_seconds", "write_seconds"} {
		assert.Contains(t, text, "spdk_csi_volume_"+name+"_total"+series+" 0")
	}

	// The controller stops measuring a volume that has not been confirmed as published for some
	// time. It continues to measure confirmed volumes.
	known := b.measured.volumes[v.GetVolumeId()[len("t0:"):]]
	known.seen = time.Now().Add(-measuredFor)
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	assert.Contains(t, scrape(), series)
	known.seen = time.Now().Add(-measuredFor - time.Second)
	assert.NotContains(t, scrape(), series)
	_, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Contains(t, scrape(), series)
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	assert.NotContains(t, scrape(), series)
}

// statistics is a Caller that responds to queries for I/O statistics.
type statistics struct {
	spdkrpc.Caller
	answer string
	err    error
	asked  []string
}

func (s *statistics) Call(ctx context.Context, method string, params, result any) error {
	if method != "bdev_get_iostat" {
		return s.Caller.Call(ctx, method, params, result)
	}
	text, _ := json.Marshal(params)
	s.asked = append(s.asked, method+string(text))
	if s.err != nil {
		return s.err
	}
	return json.Unmarshal([]byte(s.answer), result)
}

// The controller converts SPDK's ticks to seconds, and queries a single volume by its name.
func TestIOStatisticsAreConverted(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	socket := spdkrpc.NewSocket(target.Socket())
	defer func() { assert.NoError(t, socket.Close()) }()
	s := &statistics{Caller: socket, answer: `{"tick_rate": 2000, "ticks": 1, "bdevs": [{"name": "x", "bytes_read": 1, "num_read_ops": 2, "bytes_written": 3, "num_write_ops": 4, "bytes_unmapped": 5, "num_unmap_ops": 6, "read_latency_ticks": 1000, "write_latency_ticks": 4000}]}`}
	service := b.Controller.targets.byName["t0"].Service(spdkrpc.NewClient(s))
	all := b.ioOf(t.Context(), service, []metrics.VolumeIO{{Target: "t0", Volume: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}})
	require.Len(t, all, 1)
	assert.Equal(t, metrics.VolumeIO{
		Target: "t0", Volume: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", ReadBytes: 1, Reads: 2, WrittenBytes: 3, Writes: 4, UnmappedBytes: 5, Unmaps: 6, ReadSeconds: 0.5, WriteSeconds: 2,
	}, all[0])
	assert.Equal(t, []string{`bdev_get_iostat{"names":["8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"]}`}, s.asked)

	s.err = &spdkrpc.Error{Kind: spdkrpc.Denied, Code: -32003, Message: "no"}
	for range 2 {
		assert.Empty(t, b.ioOf(t.Context(), service, []metrics.VolumeIO{{Volume: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}}))
	}
	assert.Equal(t, 1, strings.Count(b.logs.String(), "allow bdev_get_iostat"))
	s.err, s.answer = nil, `{"tick_rate": 0, "ticks": 1, "bdevs": []}`
	assert.Empty(t, b.ioOf(t.Context(), service, []metrics.VolumeIO{{Volume: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}}))
	s.err = &spdkrpc.Error{Kind: spdkrpc.NoSuchDevice, Code: -19, Message: "no"}
	assert.Empty(t, b.ioOf(t.Context(), service, []metrics.VolumeIO{{Volume: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}}))
}
