package figures

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// readers returns the functions that parse results, by method.
func readers(r *Reader) map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"framework_get_reactors": r.readReactors, "iobuf_get_stats": r.readBuffers, "thread_get_stats": r.readThreads, "thread_get_pollers": r.readPollers,
		"nvmf_get_stats": r.readNVMfStats, "nvmf_get_subsystems": r.readSubsystems, "iscsi_get_target_nodes": r.readTargetNodes,
		"iscsi_get_connections": r.readISCSIConnections, "bdev_lvol_get_lvstores": r.readStores, "bdev_lvol_get_lvols": r.readVolumes, "bdev_get_bdevs": r.readSizes,
		"bdev_get_iostat": func(raw json.RawMessage) error { _, err := r.readIO(raw); return err },
	}
}

// A result that is incomplete or not JSON counts as a failure, and the earlier figures are kept.
func TestMalformedResultsKeepTheLastFigures(t *testing.T) {
	for method, whole := range map[string]string{
		"framework_get_reactors": `{"tick_rate":10,"reactors":[]}`, "iobuf_get_stats": `[]`, "thread_get_stats": `{"threads":[]}`, "thread_get_pollers": `{"threads":[]}`,
		"nvmf_get_stats": `{"poll_groups":[]}`, "nvmf_get_subsystems": `[{"subtype":"NVMe"}]`, "iscsi_get_target_nodes": `[{"luns":[{}]}]`, "iscsi_get_connections": `[{}]`,
		"bdev_lvol_get_lvstores": `[{"name":"lvs"}]`, "bdev_lvol_get_lvols": `[{"uuid":"u"}]`, "bdev_get_bdevs": `[{"name":"b"}]`, "bdev_get_iostat": `{"bdevs":[{"name":"b"}]}`,
	} {
		r := NewReader(rpcschema.Default())
		r.last, r.sizes = map[string]asked{}, map[string]size{}
		require.NoError(t, readers(r)[method](json.RawMessage(whole)), method)
		before := *r
		for _, part := range []string{"", whole[:len(whole)-1], whole + "]"} {
			require.Error(t, readers(r)[method](json.RawMessage(part)), "%s: %s", method, part)
			assert.Equal(t, []any{before.nvmf, before.iscsi, before.clock}, []any{r.nvmf, r.iscsi, r.clock}, "%s: %s", method, part)
		}
	}
}

func TestReactorsAreRead(t *testing.T) {
	r := NewReader(nil)
	require.NoError(t, r.readReactors(json.RawMessage(`{"tick_rate":10,"reactors":[
		{"lcore":3,"busy":20,"idle":30,"lw_threads":[{"name":"a","id":1,"elapsed":10},{"name":"b","id":2,"elapsed":40}]},{"lcore":4,"busy":30,"idle":40,"lw_threads":[]}]}`)))
	assert.Equal(t, []Reactor{{Core: 3, Busy: 2, Idle: 3, Threads: 2}, {Core: 4, Busy: 3, Idle: 4}}, r.reactors)
	assert.InDelta(t, 7, r.uptime, 0)
	require.NoError(t, r.readReactors(json.RawMessage(`{"tick_rate":10,"reactors":[{"lcore":3,"busy":20,"idle":30,"lw_threads":[{"name":"a","id":1,"elapsed":90}]}]}`)))
	assert.Len(t, r.reactors, 1)
	assert.InDelta(t, 9, r.uptime, 0, "a reactor that waits for interrupts counts less")
	require.NoError(t, r.readReactors(json.RawMessage(`{"tick_rate":0,"reactors":[{"lcore":3,"busy":20,"idle":30}]}`)))
	assert.Zero(t, r.uptime, "without a rate, nothing is known")
}

// Figures of threads, pollers and buffers are added up if, and only if, the names are the same.
func TestFiguresWithTheSameNameAreAdded(t *testing.T) {
	r := NewReader(nil)
	require.NoError(t, r.readThreads(json.RawMessage(`{"tick_rate":10,"threads":[
		{"name":"b","busy":10,"idle":20,"active_pollers_count":1,"timed_pollers_count":2,"paused_pollers_count":3},
		{"name":"a","busy":1,"idle":2,"active_pollers_count":7,"timed_pollers_count":8,"paused_pollers_count":9},
		{"name":"b","busy":30,"idle":50,"active_pollers_count":10,"timed_pollers_count":20,"paused_pollers_count":30}]}`)))
	assert.Equal(t, []Thread{{Name: "a", Busy: .1, Idle: .2, Active: 7, Timed: 8, Paused: 9}, {Name: "b", Busy: 4, Idle: 7, Active: 11, Timed: 22, Paused: 33}}, r.threads)
	require.NoError(t, r.readPollers(json.RawMessage(`{"threads":[
		{"name":"t","active_pollers":[{"name":"p","run_count":3,"busy_count":1},{"name":"q","run_count":5,"busy_count":2}],"timed_pollers":[{"name":"p","run_count":40,"busy_count":30}],"paused_pollers":[{"name":"o","run_count":1,"busy_count":1}]},
		{"name":"u","active_pollers":[{"name":"p","run_count":7,"busy_count":6}]}]}`)))
	assert.Equal(t, []Poller{{"t", "o", 1, 1}, {"t", "p", 43, 31}, {"t", "q", 5, 2}, {"u", "p", 7, 6}}, r.pollers)
	require.NoError(t, r.readBuffers(json.RawMessage(`[{"module":"b","small_pool":{"cache":1,"main":2,"retry":3},"large_pool":{"cache":4,"main":5,"retry":6}},
		{"module":"a","small_pool":{"cache":7,"main":7,"retry":7},"large_pool":{}},{"module":"b","small_pool":{"cache":10,"main":20,"retry":30},"large_pool":{"cache":40,"main":50,"retry":60}}]`)))
	assert.Equal(t, []BufferPool{{Module: "a", Pool: "large"}, {"a", "small", 7, 7, 7}, {"b", "large", 44, 55, 66}, {"b", "small", 11, 22, 33}}, r.buffers)
	for range 2 { // a second reading replaces the first
		require.NoError(t, r.readThreads(json.RawMessage(`{"tick_rate":10,"threads":[{"name":"a"}]}`)))
		require.NoError(t, r.readPollers(json.RawMessage(`{"threads":[{"name":"t","active_pollers":[{"name":"p"}]}]}`)))
		require.NoError(t, r.readBuffers(json.RawMessage(`[{"module":"a"}]`)))
		assert.Equal(t, []int{1, 1, 2}, []int{len(r.threads), len(r.pollers), len(r.buffers)})
	}
}

func TestSubsystemsAndTargetNodesAreRead(t *testing.T) {
	r := NewReader(nil)
	require.NoError(t, r.readNVMfStats(json.RawMessage(`{"poll_groups":[{"name":"g","current_admin_qpairs":2,"current_io_qpairs":8,"admin_qpairs":3,"io_qpairs":9,"pending_bdev_io":1,"completed_nvme_io":100},{"name":"h","current_admin_qpairs":1,"current_io_qpairs":4}]}`)))
	require.NoError(t, r.readSubsystems(json.RawMessage(`[{"subtype":"Discovery","allow_any_host":true,"hosts":[{}],"namespaces":[{}]},
		{"subtype":"NVMe","allow_any_host":true,"namespaces":[{},{}],"listen_addresses":[{"trtype":"TCP"},{"trtype":"RDMA","traddr":"x"}]},
		{"subtype":"NVMe","allow_any_host":false,"hosts":[{},{},{}],"listen_addresses":[{"trtype":"TCP"}]},{"subtype":"NVMe","hosts":[]}]`)))
	n := r.nvmf
	assert.Equal(t, []int{3, 2, 3, 1}, []int{n.Subsystems, n.Namespaces, n.Hosts, n.AnyHosts})
	assert.Equal(t, map[string]int{"TCP": 2, "RDMA": 1}, n.Listeners)
	assert.Equal(t, []uint64{3, 15}, []uint64{n.Controllers(), n.QueuePairs()})
	assert.True(t, n.Known)
	assert.Equal(t, PollGroup{"g", 2, 8, 3, 9, 1, 100}, n.PollGroups[0])
	require.NoError(t, r.readTargetNodes(json.RawMessage(`[{"name":"luns","luns":[{},{}]},{"luns":[{}],"pg_ig_maps":[{},{},{}]},{}]`)))
	require.NoError(t, r.readISCSIConnections(json.RawMessage(`[{},{}]`)))
	assert.Equal(t, ISCSI{Known: true, TargetNodes: 3, LUNs: 3, Connections: 2}, r.iscsi)
	require.NoError(t, r.readISCSIConnections(json.RawMessage(`[]`)))
	assert.Zero(t, r.iscsi.Connections)
}

func TestStoreSizesAreComputed(t *testing.T) {
	s := Store{ClusterSize: 4, Clusters: 10, Free: 3}
	assert.Equal(t, []uint64{40, 12}, []uint64{s.Size(), s.FreeBytes()})
}

// The target's start time is derived from the target's clock. It remains stable while that clock
// deviates by only seconds.
func TestTargetStartTimeIsStable(t *testing.T) {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	r := NewReader(nil)
	r.last = map[string]asked{"framework_get_reactors": {at: at}}
	assert.True(t, r.startOf().IsZero(), "unknown")
	for _, c := range []struct {
		uptime float64
		want   time.Duration
	}{{0.4, time.Second}, {100, 100 * time.Second}, {105, 100 * time.Second}, {95, 100 * time.Second}, {106, 106 * time.Second}, {100, 100 * time.Second}, {0, 100 * time.Second}} {
		r.uptime = c.uptime
		assert.Equal(t, at.Add(-c.want), r.startOf(), "up for %g s", c.uptime)
	}
}

// A failure ends the read only if it means that the target is unreachable.
func TestOnlyAnUnreachableTargetEndsARead(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		calls  int // number of calls; 1 if the read ended
		absent bool
	}{
		"unreachable":     {&spdkrpc.Error{Kind: spdkrpc.Unreachable}, 1, false},
		"outcome unknown": {&spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}, 1, false},
		"slow":            {&spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown, Err: context.DeadlineExceeded}, 2, false},
		"failed":          {&spdkrpc.Error{Kind: spdkrpc.Failed}, 2, false},
		"absent":          {&spdkrpc.Error{Kind: spdkrpc.MethodNotFound}, 1, true},
		"other":           {errors.New("x"), 2, false},
	} {
		now := time.Unix(0, 0)
		r := NewReader(rpcschema.Default())
		r.now, r.last = func() time.Time { return now }, map[string]asked{}
		calls := 0
		r.target = Target{Up: true, Release: rpcschema.MustRelease("v26.05"), Ask: func(context.Context, string, map[string]any) (json.RawMessage, error) { calls++; return nil, c.err }}
		made, err := r.callFor(t.Context(), "iobuf_get_stats", "", 0, r.readBuffers)
		assert.Equal(t, !c.absent, made, name)
		assert.Equal(t, c.absent, err == nil, name)
		now = now.Add(time.Hour)
		_, _ = r.callFor(t.Context(), "iobuf_get_stats", "", 0, r.readBuffers)
		assert.Equal(t, c.calls, calls, name)
		if c.absent {
			assert.Empty(t, r.failures, name)
		} else {
			assert.Equal(t, c.calls == 1, r.down, name)
		}
	}
	r := NewReader(rpcschema.Default())
	r.last, r.target = map[string]asked{}, Target{Release: rpcschema.MustRelease("v26.05")}
	made, err := r.callFor(t.Context(), "no_such_method", "", 0, nil)
	require.NoError(t, err)
	assert.False(t, made)
}

// iSCSI connections are read as soon as there is one target node.
func TestConnectionsAreReadIfThereIsATargetNode(t *testing.T) {
	b := newBench(t, "v26.05")
	_, methods := b.read()
	assert.NotContains(t, methods, "iscsi_get_connections")
	b.ok("bdev_malloc_create", `{"name":"m0","num_blocks":16384,"block_size":4096}`)
	b.ok("iscsi_create_portal_group", `{"tag":1,"portals":[{"host":"127.0.0.1","port":"3260"}]}`)
	b.ok("iscsi_create_initiator_group", `{"tag":1,"initiators":["ANY"],"netmasks":["ANY"]}`)
	b.ok("iscsi_create_target_node", `{"name":"disk","alias_name":"disk","pg_ig_maps":[{"pg_tag":1,"ig_tag":1}],"luns":[{"bdev_name":"m0","lun_id":0}],"queue_depth":64}`)
	b.clock = b.clock.Add(listEvery)
	f, methods := b.read()
	assert.Empty(t, f.Failures)
	assert.Contains(t, methods, "iscsi_get_connections")
}
