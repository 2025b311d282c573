package figures

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A bench is a Reader with a simulated target and a clock.
type bench struct {
	*testing.T
	target *spdktest.Target
	socket *spdkrpc.Socket
	reader *Reader
	clock  time.Time
}

func newBench(t *testing.T, release string) *bench {
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	socket := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = socket.Close() })
	b := &bench{T: t, target: target, socket: socket, reader: NewReader(rpcschema.Default()), clock: time.Unix(1800000000, 0)}
	b.reader.now = func() time.Time { return b.clock }
	return b
}

func (b *bench) ask(ctx context.Context, method string, params map[string]any) (result json.RawMessage, err error) {
	var argument any
	if params != nil {
		argument = params
	}
	err = b.socket.Call(ctx, method, argument, &result)
	return result, err
}

func (b *bench) ok(method, params string) {
	b.Helper()
	require.NoError(b, b.socket.Call(b.Context(), method, json.RawMessage(params), nil), method)
}

// read reads the figures, and returns the methods that it called.
func (b *bench) read() (*Figures, []string) {
	before := len(b.target.Calls())
	f := b.reader.Read(b.Context(), Target{Up: true, Phase: "runtime", Release: b.target.Release(), Ask: b.ask})
	var methods []string
	for _, c := range b.target.Calls()[before:] {
		methods = append(methods, c.Method)
	}
	assert.LessOrEqual(b, len(methods), f.Calls, "a call that crashes the target is not among them")
	return f, methods
}

// fill creates an lvstore with a thin volume, its snapshot and a thick volume, and exports one of
// the volumes.
func (b *bench) fill() {
	size := `"size_in_mib":8`
	if b.target.Release().Before(rpcschema.MustRelease("v23.05")) {
		size = `"size":8388608`
	}
	b.ok("bdev_malloc_create", `{"name":"m0","num_blocks":16384,"block_size":4096}`)
	b.ok("bdev_lvol_create_lvstore", `{"bdev_name":"m0","lvs_name":"lvs0","cluster_sz":4194304}`)
	b.ok("bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"thin","thin_provision":true,`+size+`}`)
	b.ok("bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"thick",`+size+`}`)
	b.ok("bdev_lvol_snapshot", `{"lvol_name":"lvs0/thick","snapshot_name":"snap"}`)
	b.ok("nvmf_create_transport", `{"trtype":"TCP"}`)
	b.ok("nvmf_create_subsystem", `{"nqn":"nqn.2026-11.example:a","allow_any_host":false}`)
	b.ok("nvmf_subsystem_add_ns", `{"nqn":"nqn.2026-11.example:a","namespace":{"bdev_name":"lvs0/thin"}}`)
	b.ok("nvmf_subsystem_add_host", `{"nqn":"nqn.2026-11.example:a","host":"nqn.2026-11.example:host"}`)
	b.ok("nvmf_subsystem_add_listener", `{"nqn":"nqn.2026-11.example:a","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}`)
}

func volume(t require.TestingT, f *Figures, name string) Volume {
	for _, v := range f.Volumes {
		if v.Name == name {
			return v
		}
	}
	require.Fail(t, "no such volume", name)
	return Volume{}
}

func TestReadReturnsAllFigures(t *testing.T) {
	for _, release := range []string{"v23.05", "v24.01", "v24.05", "v25.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.fill()
			require.True(t, b.target.DoIO("lvs0/thin", spdkrpc.BdevIOStatBdev{BytesRead: 4096, NumReadOps: 1, ReadLatencyTicks: 5e8, BytesWritten: 8192, NumWriteOps: 2, WriteLatencyTicks: 1e9, BytesUnmapped: 1, NumUnmapOps: 3, UnmapLatencyTicks: 25e7}))
			f, _ := b.read()
			assert.Empty(t, f.Failures)
			assert.True(t, f.Up)
			assert.Equal(t, release, f.Release)
			assert.False(t, f.Started.After(b.clock))
			assert.WithinDuration(t, b.clock, f.Started, time.Minute)

			require.Len(t, f.Stores, 1)
			s := f.Stores[0]
			assert.Equal(t, "lvs0", s.Name)
			assert.Equal(t, "m0", s.BaseBdev)
			assert.EqualValues(t, 4<<20, s.ClusterSize)
			assert.Equal(t, s.Clusters-2, s.Free, "the clusters of the thick volume now belong to its snapshot")
			assert.Equal(t, 2, s.Volumes)
			assert.Equal(t, 1, s.Snapshots)
			committed := 16 << 20 // of the two volumes
			if release >= "v24.05" {
				committed += 8 << 20 // of the snapshot
			}
			assert.EqualValues(t, committed, s.Committed)
			assert.Zero(t, s.Unsized)

			require.Len(t, f.Volumes, 3)
			thin, snap := volume(t, f, "thin"), volume(t, f, "snap")
			assert.True(t, thin.Thin && !thin.Snapshot && thin.HasIO)
			assert.Equal(t, "lvs0", thin.Store)
			assert.EqualValues(t, 8<<20, thin.Size)
			assert.Equal(t, release >= "v24.05", thin.AllocatedKnown)
			assert.True(t, snap.Snapshot)
			if snap.AllocatedKnown {
				assert.EqualValues(t, 8<<20, snap.Allocated)
			}
			assert.Equal(t, IO{Read: Operation{4096, 1, 0.5}, Write: Operation{8192, 2, 1}, Unmap: Operation{1, 3, 0.25}}, thin.IO)
			require.Len(t, f.Bdevs, 1)
			assert.Equal(t, "m0", f.Bdevs[0].Name)

			assert.Equal(t, 1, f.NVMf.Subsystems, "the discovery subsystem does not count")
			assert.Equal(t, 1, f.NVMf.Namespaces)
			assert.Equal(t, 1, f.NVMf.Hosts)
			assert.Zero(t, f.NVMf.AnyHosts)
			assert.Equal(t, map[string]int{"TCP": 1}, f.NVMf.Listeners)
			assert.Len(t, f.NVMf.PollGroups, 1)
			assert.True(t, f.ISCSI.Known)
			assert.Len(t, f.Reactors, 1)
			assert.Positive(t, f.Reactors[0].Busy)
			assert.Len(t, f.Threads, 3)
			assert.Len(t, f.Pollers, 6)
			if release < "v24.01" {
				assert.Empty(t, f.Buffers, "this release does not report buffers")
			} else {
				assert.Len(t, f.Buffers, 4)
			}
		})
	}
}

// Long lists are read once per minute, or earlier if there are new volumes.
func TestListsAreReadRarely(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	_, first := b.read()
	assert.Contains(t, first, "bdev_get_bdevs")
	short := []string{"framework_get_reactors", "bdev_lvol_get_lvstores", "bdev_get_iostat", "nvmf_get_stats", "iobuf_get_stats", "thread_get_stats"}
	b.clock = b.clock.Add(10 * time.Second)
	_, second := b.read()
	assert.Equal(t, short, second)

	b.ok("bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"new","size_in_mib":4}`)
	b.clock = b.clock.Add(10 * time.Second)
	f, third := b.read()
	assert.Contains(t, third, "bdev_lvol_get_lvols")
	assert.NotContains(t, third, "bdev_get_bdevs", "the longest list")
	assert.Zero(t, volume(t, f, "new").Size, "the volume's size is not known yet")
	assert.True(t, volume(t, f, "new").HasIO)
	assert.Equal(t, 1, f.Stores[0].Unsized)
	assert.Len(t, f.Bdevs, 1, "the new volume does not count as another bdev")

	b.clock = b.clock.Add(time.Minute)
	f, fourth := b.read()
	assert.Contains(t, fourth, "bdev_get_bdevs")
	assert.EqualValues(t, 4<<20, volume(t, f, "new").Size)
	b.clock = b.clock.Add(time.Minute)
	_, fifth := b.read()
	assert.Contains(t, fifth, "bdev_lvol_get_lvols")
	assert.NotContains(t, fifth, "bdev_get_bdevs")
	b.clock = b.clock.Add(10 * time.Minute)
	_, sixth := b.read()
	assert.Contains(t, sixth, "bdev_get_bdevs", "volumes may have been resized")

	b.ok("bdev_malloc_create", `{"name":"m1","num_blocks":16384,"block_size":4096}`)
	b.clock = b.clock.Add(10 * time.Second)
	f, seventh := b.read()
	assert.Contains(t, seventh, "bdev_lvol_get_lvols", "the new bdev could be a volume")
	assert.Len(t, f.Bdevs, 2)
	b.clock = b.clock.Add(10 * time.Second)
	_, eighth := b.read()
	assert.Equal(t, short, eighth)
}

// A slow call is rarely repeated, however often figures are read.
func TestSlowCallsAreRepeatedRarely(t *testing.T) {
	b := newBench(t, "v26.05")
	slow := 0
	ask := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		if method == "bdev_get_iostat" {
			slow++
			b.clock = b.clock.Add(time.Second)
		}
		return b.ask(ctx, method, params)
	}
	for range 99 {
		b.reader.Read(t.Context(), Target{Up: true, Release: b.target.Release(), Ask: ask})
		b.clock = b.clock.Add(time.Second)
	}
	assert.Equal(t, 1, slow)
	b.reader.Read(t.Context(), Target{Up: true, Release: b.target.Release(), Ask: ask})
	assert.Equal(t, 2, slow)
}

// New volumes are omitted until the list of volumes is read again.
func TestUnknownBdevsAreOmitted(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_get_lvols", Do: spdktest.Fail, Times: -1})
	f, _ := b.read()
	assert.Empty(t, f.Bdevs)
	assert.Len(t, f.Failures, 1)
	b.target.ClearFaults()
	b.clock = b.clock.Add(time.Minute)
	f, _ = b.read()
	assert.Len(t, f.Bdevs, 1)
	assert.Len(t, f.Volumes, 3)
}

func TestFailedListKeepsOtherFigures(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.target.Inject(spdktest.Fault{Method: "nvmf_get_stats", Do: spdktest.Fail})
	b.target.Inject(spdktest.Fault{Method: "thread_get_stats", Do: spdktest.Fail, Error: jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found"), Times: -1})
	f, _ := b.read()
	assert.True(t, f.Up)
	require.Len(t, f.Failures, 1, "a method that the target was built without is not a failure")
	assert.Equal(t, "nvmf_get_stats", f.Failures[0].Method)
	assert.Empty(t, f.NVMf.PollGroups)
	assert.Empty(t, f.Threads)
	assert.Len(t, f.Buffers, 4)
	f, methods := b.read()
	assert.Empty(t, f.Failures)
	assert.Len(t, f.NVMf.PollGroups, 1)
	assert.NotContains(t, methods, "thread_get_stats")
}

// If the target dies while figures are being read, it counts as down, and the next read reads all
// figures of the new process.
func TestReadEndsWhenTheTargetDies(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.read()
	b.target.Inject(spdktest.Fault{Method: "nvmf_get_stats", Do: spdktest.Crash})
	f, methods := b.read()
	assert.False(t, f.Up)
	assert.Equal(t, "unreachable", f.Phase)
	assert.Empty(t, f.Stores)
	assert.NotContains(t, methods, "thread_get_stats")
	require.NoError(t, b.target.Restart())
	f = b.reader.Read(t.Context(), Target{Phase: "startup", Release: b.target.Release()})
	assert.False(t, f.Up)
	assert.Zero(t, f.Calls)
	f, methods = b.read()
	assert.True(t, f.Up)
	assert.Contains(t, methods, "nvmf_get_subsystems")
	assert.Empty(t, f.Volumes, "bdevs in memory no longer exist")
}

// Unexpected JSON causes an error rather than a panic.
func FuzzResults(f *testing.F) {
	for _, text := range []string{`[]`, `{}`, `null`, `[{"name":"a","uuid":"b"`, `{"tick_rate":1,"bdevs":[{"name":"x","bytes_read":-1}]}`, `[[{}]]`, `{"bdevs":{"a":[1]}}`, "[{\"lvs\":\"\xff\"}]", `[{"driver_specific":{"lvol":{"num_allocated_clusters":"x"}}}]`, `{"histogram":"AA==","bucket_shift":7,"tsc_rate":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := NewReader(rpcschema.Default())
		for _, read := range []func(json.RawMessage) error{r.readStores, r.readVolumes, r.readSizes, r.readSubsystems, r.readTargetNodes, r.readISCSIConnections, r.readNVMfStats, r.readReactors, r.readBuffers, r.readThreads, r.readPollers} {
			_ = read(raw)
		}
		_, _ = r.readIO(raw)
		_, _ = readLatencies(raw)
		r.summed()
	})
}

// target10k returns the responses of a target with n volumes.
func target10k(n int) Ask {
	var io, lvols, bdevs []byte
	io = append(io, `{"tick_rate":2445400000,"ticks":177815395173059,"bdevs":[`...)
	lvols, bdevs = append(lvols, '['), append(bdevs, '[')
	for i := range n {
		if i > 0 {
			io, lvols, bdevs = append(io, ','), append(lvols, ','), append(bdevs, ',')
		}
		id := fmt.Sprintf("be5c5ef7-e10e-4084-87bf-%012d", i)
		io = fmt.Appendf(io, `{"name":"%s","bytes_read":4096000,"num_read_ops":3000,"bytes_written":123456789,"num_write_ops":2000,"bytes_unmapped":0,"num_unmap_ops":0,"bytes_copied":0,"num_copy_ops":0,"read_latency_ticks":610858123,"max_read_latency_ticks":284126,"min_read_latency_ticks":48902,"write_latency_ticks":1234567890,"max_write_latency_ticks":0,"min_write_latency_ticks":0,"unmap_latency_ticks":0,"max_unmap_latency_ticks":0,"min_unmap_latency_ticks":0,"copy_latency_ticks":0,"max_copy_latency_ticks":0,"min_copy_latency_ticks":0,"io_error":{}}`, id)
		lvols = fmt.Appendf(lvols, `{"alias":"lvs0/pvc-%d","uuid":"%s","name":"pvc-%d","is_thin_provisioned":true,"is_snapshot":false,"is_clone":false,"is_esnap_clone":false,"is_degraded":false,"num_allocated_clusters":7,"lvs":{"name":"lvs0","uuid":"8085ea37-94c1-45c5-8f9b-068dd92f3b51"}}`, i, id, i)
		bdevs = fmt.Appendf(bdevs, `{"name":"%s","block_size":4096,"num_blocks":256,"driver_specific":{"lvol":{"num_allocated_clusters":7}}}`, id)
	}
	answers := map[string]string{
		"bdev_get_iostat": string(append(io, "]}"...)), "bdev_lvol_get_lvols": string(append(lvols, ']')), "bdev_get_bdevs": string(append(bdevs, ']')),
		"bdev_lvol_get_lvstores": `[{"uuid":"8085ea37-94c1-45c5-8f9b-068dd92f3b51","name":"lvs0","base_bdev":"m0","total_data_clusters":100000,"free_clusters":15,"block_size":4096,"cluster_size":1048576}]`,
		"nvmf_get_subsystems":    `[]`, "iscsi_get_target_nodes": `[]`, "iobuf_get_stats": `[]`,
	}
	return func(_ context.Context, method string, _ map[string]any) (json.RawMessage, error) {
		if text, ok := answers[method]; ok {
			return json.RawMessage(text), nil
		}
		return json.RawMessage(`{}`), nil
	}
}

// BenchmarkReadManyVolumes measures the Reader's own cost of reading 10,000 volumes that have
// already been listed.
func BenchmarkReadManyVolumes(b *testing.B) {
	target := Target{Up: true, Release: rpcschema.MustRelease("v26.05"), Ask: target10k(10000)}
	r := NewReader(rpcschema.Default())
	clock := time.Unix(1800000000, 0)
	r.now = func() time.Time { return clock }
	require.Len(b, r.Read(b.Context(), target).Volumes, 10000)
	b.ReportAllocs()
	for b.Loop() {
		clock = clock.Add(10 * time.Second)
		r.Read(b.Context(), target)
	}
}
