package metrics

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScrapeContainsAllMetrics(t *testing.T) {
	m := New("v1")
	ended := m.Begin("CreateVolume")
	ended("OK")
	m.Begin("NodeStageVolume")
	m.TargetCall("a", "bdev_lvol_create", "ok", time.Second)
	m.TargetCall("a", "bdev_lvol_create", "outcome_unknown", time.Second)
	m.TargetUp("a", true)
	m.TargetUp("b", true)
	m.TargetUp("b", false)
	scrape := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	assert.NotContains(t, scrape(), "spdk_csi_node_", "a controller watches no volumes")
	m.Reconnected(true)
	m.NodeVolumes([]NodeVolume{{Target: "a", Volume: "v", State: "read_only", ReadOnly: true, Live: 1, Expected: 2}, {Target: "a", Volume: "w", State: "hanging"}})
	m.ReplicatedVolumes(func() []ReplicatedVolume {
		return []ReplicatedVolume{{Volume: "r", InSync: 1, Rebuilt: 0.5}, {Volume: "s", InSync: 2, Waiting: true, Rebuilt: -1}, {Volume: "t", Rebuilt: -1}}
	})
	text := scrape()
	for _, line := range []string{
		`spdk_csi_operations_total{code="OK",method="CreateVolume"} 1`,
		`spdk_csi_operation_duration_seconds_count{method="CreateVolume"} 1`,
		`spdk_csi_operations_in_flight{method="CreateVolume"} 0`,
		`spdk_csi_operations_in_flight{method="NodeStageVolume"} 1`,
		`spdk_csi_target_calls_total{method="bdev_lvol_create",outcome="ok",target="a"} 1`,
		`spdk_csi_target_call_duration_seconds_count{target="a"} 2`,
		`spdk_csi_target_up{target="a"} 1`,
		`spdk_csi_target_up{target="b"} 0`,
		`spdk_csi_node_volume_state{state="read_only",target="a",volume="v"} 1`,
		`spdk_csi_node_volume_state{state="hanging",target="a",volume="w"} 1`,
		`spdk_csi_node_volume_read_only{target="a",volume="v"} 1`,
		`spdk_csi_node_volume_read_only{target="a",volume="w"} 0`,
		`spdk_csi_node_volume_paths_live{target="a",volume="v"} 1`,
		`spdk_csi_node_volume_paths_expected{target="a",volume="v"} 2`,
		`spdk_csi_node_reconnects_total{outcome="ok"} 1`,
		`spdk_csi_node_reconnects_total{outcome="failed"} 0`,
		`spdk_csi_node_replicas_in_sync{volume="r"} 1`,
		`spdk_csi_node_replicas_in_sync{volume="s"} 2`,
		`spdk_csi_node_replicated_volume_waiting{volume="r"} 0`,
		`spdk_csi_node_replicated_volume_waiting{volume="s"} 1`,
		`spdk_csi_node_replica_rebuilt_ratio{volume="r"} 0.5`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	assert.NotContains(t, text, `spdk_csi_node_volume_paths_live{target="a",volume="w"}`, "unknown")
	assert.NotContains(t, text, `spdk_csi_node_replicas_in_sync{volume="t"}`, "unknown")
	assert.NotContains(t, text, `spdk_csi_node_replica_rebuilt_ratio{volume="s"}`, "it is not being rebuilt")
	assert.Contains(t, text, "spdk_csi_node_last_check_timestamp_seconds")
	assert.Contains(t, text, `version="v1"`)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// Dashboards and alerts refer to the histograms' bucket bounds.
func TestBucketsMatchTheAlerts(t *testing.T) {
	m := New("v1")
	m.Begin("CreateVolume")("OK")
	m.TargetCall("a", "bdev_lvol_create", "ok", time.Second)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	bounds := map[string][]string{}
	for _, found := range regexp.MustCompile(`(?m)^(spdk_csi_\w+)_bucket\{.*le="([^"]+)"\}`).FindAllStringSubmatch(w.Body.String(), -1) {
		bounds[found[1]] = append(bounds[found[1]], found[2])
	}
	all := []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "120", "300", "+Inf"}
	assert.Equal(t, map[string][]string{"spdk_csi_operation_duration_seconds": all, "spdk_csi_target_call_duration_seconds": all}, bounds)
}

func TestNilMetricsAreAllowed(t *testing.T) {
	var m *Metrics
	m.Begin("CreateVolume")("OK")
	m.TargetCall("a", "b", "ok", 0)
	m.TargetUp("a", true)
	m.NodeVolumes(nil)
	m.Reconnected(true)
	m.ReplicatedVolumes(nil)
}
