package targetmetrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

func io1(n uint64) figures.IO {
	return figures.IO{Read: figures.Operation{Bytes: 4096 * n, Count: n, Latency: float64(n) / 4}}
}

// full returns figures with every kind of object that a target can contain.
func full() *figures.Figures {
	return &figures.Figures{
		Up: true, Phase: "runtime", Release: "v26.05", Restarts: 2, Taken: time.Unix(1800000000, 0), Took: time.Second, Started: time.Unix(1700000000, 0), Calls: 7,
		Failures: []figures.Failure{{Method: "nvmf_get_stats"}},
		Stores:   []figures.Store{{Name: "lvs0", ClusterSize: 4 << 20, Clusters: 100, Free: 40, Volumes: 1, Snapshots: 1, Committed: 1 << 30, Unsized: 3}},
		Volumes: []figures.Volume{
			{Store: "lvs0", Name: `a "quoted\" name` + "\n", UUID: "1", Size: 8 << 20, Allocated: 4 << 20, AllocatedKnown: true, IO: io1(2), HasIO: true},
			{Store: "lvs0", Name: "snap\xff", UUID: "2", Snapshot: true},
		},
		Bdevs:      []figures.Bdev{{Name: "nvme0n1", IO: io1(5)}},
		Histograms: []figures.Histogram{{Bdev: "lvs0/v", Store: "lvs0", Volume: `a "quoted\" name` + "\n"}, {Bdev: "nvme0n1"}},
		NVMf: figures.NVMf{Known: true, Subsystems: 3, Namespaces: 4, Hosts: 5, AnyHosts: 1, Listeners: map[string]int{"TCP": 2}, PollGroups: []figures.PollGroup{
			{Name: "g0", AdminQueuePairs: 1, IOQueuePairs: 4, AdminQueuePairsTotal: 11, IOQueuePairsTotal: 44, Pending: 6, Completed: 99},
			{Name: "g1", AdminQueuePairs: 2},
		}},
		ISCSI:    figures.ISCSI{Known: true, TargetNodes: 2, LUNs: 3, Connections: 1},
		Reactors: []figures.Reactor{{Core: 1, Busy: 10, Idle: 30, Threads: 3}},
		Buffers:  []figures.BufferPool{{Module: "bdev", Pool: "small", FromCache: 1, FromPool: 2, Retries: 3}},
		Threads:  []figures.Thread{{Name: "app_thread", Busy: 1.5, Idle: 2, Active: 3, Timed: 4, Paused: 5}},
		Tenants: []figures.TenantAmount{
			{Tenant: "a", Object: "bytes", Used: 7, Quota: new(uint64(70))}, {Tenant: "a", Object: "volumes", Used: 8, Quota: new(uint64(80))}, {Tenant: "b", Object: "volumes", Used: 9},
		},
		Pollers: []figures.Poller{{Thread: "app_thread", Name: "p", Runs: 7, BusyRuns: 6}},
	}
}

func samples(t *testing.T, text []byte) map[string]float64 {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err, "%s", text)
	found := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := []string{name}
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

func TestTextContainsAllMetrics(t *testing.T) {
	got := samples(t, New(10).Text(full()).Plain)
	for series, value := range map[string]float64{
		"spdk_up": 1, "spdk_state runtime": 1, "spdk_state startup": 0, "spdk_info v26.05": 1, "spdk_restarts_total": 2, "spdk_start_time_seconds": 1.7e9,
		"spdk_reading_timestamp_seconds": 1.8e9, "spdk_reading_duration_seconds": 1, "spdk_reading_calls_total": 7, "spdk_reading_failures_total nvmf_get_stats": 1,
		"spdk_lvstore_size_bytes lvs0": 400 << 20, "spdk_lvstore_free_bytes lvs0": 160 << 20, "spdk_lvstore_clusters lvs0": 100, "spdk_lvstore_free_clusters lvs0": 40,
		"spdk_lvstore_cluster_size_bytes lvs0": 4 << 20, "spdk_lvstore_volumes lvs0": 1, "spdk_lvstore_snapshots lvs0": 1, "spdk_lvstore_committed_bytes lvs0": 1 << 30,
		"spdk_lvstore_unsized_volumes lvs0": 3, "spdk_lvstore_io_bytes_total lvs0 read": 8192, "spdk_lvstore_io_operations_total lvs0 write": 0,
		"spdk_series_omitted lvol": 0, "spdk_series_omitted bdev": 0, "spdk_series_omitted poller": 0,
		"spdk_lvol_size_bytes lvs0 a \"quoted\\\" name\n": 8 << 20, "spdk_lvol_allocated_bytes lvs0 a \"quoted\\\" name\n": 4 << 20,
		"spdk_lvol_io_latency_seconds_total lvs0 a \"quoted\\\" name\n read": 0.5,
		"spdk_bdev_io_operations_total nvme0n1 read":                         5, "spdk_io_duration_up lvs0/v": 1, "spdk_nvmf_subsystems": 3, "spdk_nvmf_namespaces": 4, "spdk_nvmf_hosts": 5, "spdk_nvmf_any_host_subsystems": 1,
		"spdk_nvmf_listeners TCP": 2, "spdk_nvmf_controllers": 3, "spdk_nvmf_queue_pairs g0 io": 4, "spdk_nvmf_queue_pairs g1 admin": 2,
		"spdk_nvmf_queue_pairs_connected_total g0 admin": 11, "spdk_nvmf_pending_commands g0": 6, "spdk_nvmf_commands_completed_total g0": 99,
		"spdk_tenant_used_bytes a": 7, "spdk_tenant_quota_bytes a": 70, "spdk_tenant_used_objects a volumes": 8, "spdk_tenant_quota_objects a volumes": 80, "spdk_tenant_used_objects b volumes": 9,
		"spdk_iscsi_target_nodes": 2, "spdk_iscsi_luns": 3, "spdk_iscsi_connections": 1,
		"spdk_reactor_busy_seconds_total 1": 10, "spdk_reactor_idle_seconds_total 1": 30, "spdk_reactor_threads 1": 3,
		"spdk_iobuf_buffers_total bdev small cache": 1, "spdk_iobuf_buffers_total bdev small pool": 2, "spdk_iobuf_retries_total bdev small": 3,
		"spdk_thread_busy_seconds_total app_thread": 1.5, "spdk_thread_idle_seconds_total app_thread": 2, "spdk_thread_pollers app_thread paused": 5,
		"spdk_poller_runs_total app_thread p": 7, "spdk_poller_busy_runs_total app_thread p": 6,
	} {
		v, ok := got[series]
		assert.True(t, ok, series)
		assert.InDelta(t, value, v, 0, series)
	}
	assert.NotContains(t, got, "spdk_tenant_quota_objects b volumes", "there is no bound")
	assert.NotContains(t, got, "spdk_lvol_io_operations_total lvs0 snap\ufffd read", "the I/O of this volume is unknown")
}

func TestNamesFollowPrometheusConventions(t *testing.T) {
	problems, err := promlint.New(bytes.NewReader(New(10).Text(full()).Plain)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestDownTargetReportsOnlyItsState(t *testing.T) {
	f := full()
	f.Up, f.Phase = false, "startup"
	got := samples(t, New(10).Text(f).Plain)
	assert.Zero(t, got["spdk_up"])
	assert.InDelta(t, 1, got["spdk_state startup"], 0)
	for name := range got {
		assert.NotContains(t, name, "lvs0")
	}
}

// many returns a reading of a range of volumes, each with count operations.
func many(from, to int, count uint64) *figures.Figures {
	f := &figures.Figures{Up: true, Stores: []figures.Store{{Name: "lvs0"}}}
	for i := from; i < to; i++ {
		f.Volumes = append(f.Volumes, figures.Volume{Store: "lvs0", Name: fmt.Sprint("v", i), UUID: fmt.Sprint(i), IO: io1(count), HasIO: true})
		f.Bdevs = append(f.Bdevs, figures.Bdev{Name: fmt.Sprint("b", i), IO: io1(count)})
	}
	return f
}

// Volumes beyond the limit have no series, but volumes that already have series keep them.
func TestNumberOfSeriesIsLimited(t *testing.T) {
	e := New(10)
	series := map[string]string{"lvol": "spdk_lvol_io_bytes_total lvs0 v%d read", "bdev": "spdk_bdev_io_bytes_total b%d read"}
	with := func(f *figures.Figures, kind string) (names []string, omitted float64) {
		got := samples(t, e.Text(f).Plain)
		for i := range 1000 {
			if _, ok := got[fmt.Sprintf(series[kind], i)]; ok {
				names = append(names, fmt.Sprint(i))
			}
		}
		slices.Sort(names)
		return names, got["spdk_series_omitted "+kind]
	}
	_, omitted := with(many(100, 108, 1), "lvol")
	assert.Zero(t, omitted)
	for _, kind := range []string{"lvol", "bdev"} {
		f := many(0, 1000, 1)
		names, omitted := with(f, kind)
		assert.InDelta(t, 990, omitted, 0)
		assert.Equal(t, []string{"0", "1", "100", "101", "102", "103", "104", "105", "106", "107"}, names, "volumes that had series keep them")
	}
	got := samples(t, e.Text(many(0, 1000, 1)).Plain)
	assert.InDelta(t, 1000, got["spdk_lvstore_io_operations_total lvs0 read"], 0, "the sum includes all volumes")
	names, _ := with(many(105, 200, 1), "lvol")
	assert.Equal(t, []string{"105", "106", "107", "108", "109", "110", "111", "112", "113", "114"}, names, "a deleted volume makes room for another")
}

// The sums of lvstores are counters, so they do not decrease when volumes are deleted or the target
// is restarted.
func TestStoreSumsNeverDecrease(t *testing.T) {
	e := New(10)
	sum := func(f *figures.Figures) float64 {
		return samples(t, e.Text(f).Plain)["spdk_lvstore_io_operations_total lvs0 read"]
	}
	assert.InDelta(t, 20, sum(many(0, 2, 10)), 0)
	assert.InDelta(t, 30, sum(many(0, 2, 15)), 0)
	assert.InDelta(t, 35, sum(many(0, 1, 20)), 0, "one was deleted")
	assert.InDelta(t, 38, sum(many(0, 1, 3)), 0, "the target was restarted")
	assert.InDelta(t, 51, sum(many(0, 2, 8)), 0, "one volume is new: 5 and 8")
	unread := many(0, 1, 0)
	unread.Failures = []figures.Failure{{Method: "bdev_lvol_get_lvols"}}
	unread.Volumes = nil
	assert.InDelta(t, 51, sum(unread), 0)
	assert.InDelta(t, 53, sum(many(0, 2, 9)), 0, "the volumes were only missing from one reading")
}

func TestFiguresAreFormattedOnce(t *testing.T) {
	e, f := New(10), full()
	first := e.Text(f)
	assert.Same(t, first, e.Text(f))
	packed := first.Gzipped()
	assert.Same(t, &packed[0], &first.Gzipped()[0])
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Equal(t, string(first.Plain), string(plain))
	assert.NotSame(t, first, e.Text(full()))
}

func BenchmarkText(b *testing.B) {
	for _, limit := range []int{1000, 10000} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			e := New(limit)
			readings := []*figures.Figures{many(0, 10000, 1), many(0, 10000, 2)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.Text(readings[i%2])
			}
			b.ReportMetric(float64(len(e.text.Plain)), "bytes")
		})
	}
}
