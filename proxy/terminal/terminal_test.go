package terminal

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var taken = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func reading() *figures.Figures {
	return &figures.Figures{
		Up: true, Phase: "runtime", Release: "v26.05", Taken: taken, Started: taken.Add(-76 * time.Hour),
		Stores: []figures.Store{
			{Name: "lvs0", ClusterSize: 1 << 30, Clusters: 100, Free: 54, Volumes: 7, Snapshots: 2, Committed: 75 << 30},
			{Name: "a-very-long-name-of-a-store\x1b[31m", ClusterSize: 1 << 20, Clusters: 100, Free: 5, Volumes: 1, Committed: 200 << 20},
		},
		NVMf:     figures.NVMf{Known: true, Subsystems: 3, Namespaces: 4, Listeners: map[string]int{"TCP": 5, "RDMA": 1}, PollGroups: []figures.PollGroup{{AdminQueuePairs: 2, IOQueuePairs: 8}}},
		ISCSI:    figures.ISCSI{TargetNodes: 1, Connections: 2},
		Reactors: []figures.Reactor{{Busy: 1, Idle: 3}, {Busy: 1, Idle: 1}},
		Buffers:  []figures.BufferPool{{Retries: 7}},
		Failures: []figures.Failure{{Method: "thread_get_stats", Err: errors.New("thread_get_stats: denied")}},
	}
}

const metrics = `# TYPE spdk_proxy_calls_total counter
spdk_proxy_calls_total{user="csi",method="a",outcome="ok"} 90
spdk_proxy_calls_total{user="csi",method="b",outcome="ok"} 5
spdk_proxy_calls_total{user="csi",method="b",outcome="denied"} 3
spdk_proxy_calls_total{user="csi",method="b",outcome="busy"} 2
spdk_proxy_calls_total{user="",method="b",outcome="unauthenticated"} 1
# TYPE spdk_proxy_target_reconnects_total counter
spdk_proxy_target_reconnects_total 2
# TYPE spdk_proxy_target_config_save_failed gauge
spdk_proxy_target_config_save_failed 1
# TYPE spdk_proxy_target_config_missing gauge
spdk_proxy_target_config_missing 4
# TYPE spdk_proxy_target_config_chosen gauge
spdk_proxy_target_config_chosen 1
# TYPE spdk_proxy_config_last_reload_successful gauge
spdk_proxy_config_last_reload_successful 0
# TYPE spdk_proxy_learning_users gauge
spdk_proxy_learning_users 1
# TYPE spdk_proxy_certificate_expiry_timestamp_seconds gauge
spdk_proxy_certificate_expiry_timestamp_seconds{certificate="server"} 1796169600
spdk_proxy_certificate_expiry_timestamp_seconds{certificate="client_ca"} 1996169600
`

const screen = `SPDK v26.05, up 3 d 4 h, restarted 2 times since the proxy started

Lvstores
lvs0                 [###########-------......]  46 % of 100 GiB, 75 % provisioned, 7 volumes, 2 snapshots
a-very-long-name-of… [#######################-]  95 % of 100 MiB, 200 % provisioned, 1 volume, 0 snapshots

Volumes      8, and 2 snapshots
Exports      3 NVMe-oF subsystems with 4 namespaces and 6 listeners, 1 iSCSI target
Connections  2 NVMe-oF controllers with 10 queue pairs, 2 iSCSI
Cores        2, busy 33 % of their time

Calls by user                   calls      refused       failed
csi                               100            3            5
(unauthenticated)                   1            0            1

Warnings
! lvstore a-very-long-name-of-a-store\u001b[31m is 95 % full
! modules had to wait for free buffers 7 times since the target started: raise the pools with iobuf_set_options
! the target's configuration could not be saved: a restart would lose changes
! the target lacks 4 calls of its saved configuration
! another saved configuration was chosen (spdk-proxy saved use), and the target has not loaded it: restart spdk_tgt
! the proxy has refused its new configuration, and uses the old one
! learning mode, which allows every call: 1 user
! certificate server expires on 2026-12-02
? thread_get_stats: denied
`

func TestStatusScreenFitsAnyWidth(t *testing.T) {
	s, err := NewStatus(reading(), metrics)
	require.NoError(t, err)
	assert.Equal(t, screen, Page{}.Status(s))
	for _, width := range []int{30, 40, 60, 80, 120} {
		for line := range strings.Lines(Page{Width: width}.Status(s)) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
	}
	coloured := Page{Colours: true}.Status(s)
	assert.Contains(t, coloured, "\x1b[31m####", "a full store is red")
	assert.Contains(t, coloured, "\x1b[32m####")
	assert.NotContains(t, Page{}.Status(s), "\x1b")
	text, err := json.Marshal(s)
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"name":"lvs0","size_bytes":107374182400,"free_bytes":57982058496,"committed_bytes":80530636800,"volumes":7,"snapshots":2}`)
	assert.Contains(t, string(text), `"started":"2026-11-20T06:00:00Z","restarts":2`)
}

func TestStatusShowsThatTheTargetIsDown(t *testing.T) {
	for phase, warning := range map[string]string{"unreachable": "the target is unreachable", "startup": "the target waits for framework_start_init"} {
		s, err := NewStatus(&figures.Figures{Phase: phase, Taken: taken}, "")
		require.NoError(t, err)
		assert.Equal(t, "Target "+phase+"\n\nWarnings\n! "+warning+"\n", Page{}.Status(s))
	}
	_, err := NewStatus(reading(), "no metrics {")
	require.Error(t, err)
}

func TestSizesAndTimesAreFormatted(t *testing.T) {
	for n, text := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 5 << 30: "5 GiB", 100 << 40: "100 TiB", 1 << 63: "8192 PiB"} {
		assert.Equal(t, text, bytes(n))
	}
	for d, text := range map[time.Duration]string{5 * time.Second: "5 s", 61 * time.Second: "1 min", 61 * time.Minute: "1 h 1 min", 49 * time.Hour: "2 d 1 h"} {
		assert.Equal(t, text, since(d))
	}
}

func op(count, bytes uint64, latency float64) figures.Operation {
	return figures.Operation{Count: count, Bytes: bytes, Latency: latency}
}

func TestTopListsVolumesByRate(t *testing.T) {
	before := &figures.Figures{Clock: 10, Bdevs: []figures.Bdev{{Name: "nvme0n1"}}, Volumes: []figures.Volume{
		{UUID: "1", Store: "lvs0", Name: "busy", HasIO: true, IO: figures.IO{Read: op(100, 1e6, 1)}},
		{UUID: "2", Store: "lvs0", Name: "slow", HasIO: true},
		{UUID: "3", Store: "lvs0", Name: "reset", HasIO: true, IO: figures.IO{Read: op(100, 1e6, 1)}},
		{UUID: "4", Store: "lvs0", Name: "unknown"},
	}}
	now := &figures.Figures{Clock: 12, Bdevs: []figures.Bdev{{Name: "nvme0n1", IO: figures.IO{Write: op(2000, 4e9, 4)}}}, Volumes: []figures.Volume{
		{UUID: "1", Store: "lvs0", Name: "busy", HasIO: true, IO: figures.IO{Read: op(300, 5e6, 1.2), Write: op(100, 2e6, 0.1)}},
		{UUID: "2", Store: "lvs0", Name: "slow", HasIO: true, IO: figures.IO{Read: op(2, 8e6, 1)}},
		{UUID: "3", Store: "lvs0", Name: "reset", HasIO: true, IO: figures.IO{Read: op(10, 1e3, 1)}},
		{UUID: "4", Store: "lvs0", Name: "unknown", HasIO: true},
		{UUID: "5", Store: "lvs0", Name: "new", HasIO: true},
	}}
	names := func(order string, all bool) (list []string) {
		for _, r := range Rates(before, now, order, all) {
			list = append(list, r.Name)
		}
		return list
	}
	assert.Equal(t, []string{"lvs0/busy", "lvs0/slow", "lvs0/reset"}, names("iops", false))
	assert.Equal(t, []string{"lvs0/slow", "lvs0/busy", "lvs0/reset"}, names("throughput", false))
	assert.Equal(t, []string{"lvs0/slow", "lvs0/busy", "lvs0/reset"}, names("latency", false))
	assert.Equal(t, []string{"nvme0n1", "lvs0/busy", "lvs0/slow", "lvs0/reset"}, names("iops", true))
	assert.Nil(t, Rates(now, now, "iops", true), "the target has not counted anew")

	assert.Equal(t, `title
VOLUME         READ/s  WRITE/s   MB/s R   MB/s W     ms R     ms W
lvs0/busy         100       50      2.0      1.0     1.00     1.00
lvs0/slow           1        0      4.0      0.0   500.00     0.00
`, Page{}.Top("title", Rates(before, now, "iops", false), 2))
	rates := Rates(before, now, "iops", true)
	AddPercentiles(rates, []spdkrpc.ProxyBdevIO{
		{Name: "1", Alias: new("lvs0/busy"), Samples: []spdkrpc.ProxyIOSample{{LatencyP50US: new(1.0), LatencyP99US: new(2.0)}, {LatencyP50US: new(900.0), LatencyP99US: new(12340.0)}}},
		{Name: "2", Alias: new("lvs0/slow"), Samples: []spdkrpc.ProxyIOSample{{}}},
		{Name: "nvme0n1"},
	})
	assert.Equal(t, `title
VOLUME         READ/s  WRITE/s   MB/s R   MB/s W     ms R     ms W   ms p50   ms p99
nvme0n1             0     1000      0.0   2000.0     0.00     2.00        -        -
lvs0/busy         100       50      2.0      1.0     1.00     1.00     0.90    12.34
`, Page{}.Top("title", rates, 2))
	assert.NotContains(t, Page{}.Top("title", rates, 1), "p99", "no percentiles are known")
	for line := range strings.Lines(Page{Width: 30}.Top("title", rates, 10)) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 30)
	}
	for line := range strings.Lines(Page{Width: 30}.Top("title", Rates(before, now, "iops", true), 10)) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 30)
	}
}
