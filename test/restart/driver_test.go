package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const volumeBytes = 16 << 20

// deadly passes calls on. When the target has executed the call with the number at that changes something, it dies.
type deadly struct {
	spdkrpc.Caller
	mu        sync.Mutex
	at, calls int
	lost      bool   // so that the answer does not arrive
	method    string // of that call
	die       func()
	unsaved   bool // nothing is saved
}

func (d *deadly) Call(ctx context.Context, method string, params, result any) error {
	if d.unsaved && method == "spdkgate_config_await" {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.NotSaved, Code: -32050, Message: "disk full"}
	}
	err := d.Caller.Call(ctx, method, params, result)
	if m, _ := rpcschema.Default().Method(method); m == nil || !m.Mutates {
		return err
	}
	d.mu.Lock() // the driver makes several calls at once
	d.calls++
	deadly := d.calls == d.at
	if deadly {
		d.method = method
	}
	d.mu.Unlock()
	if deadly {
		d.die()
		if d.lost {
			return &spdkrpc.Error{Method: method, Kind: spdkrpc.OutcomeUnknown, Message: "the target died"}
		}
	}
	return err
}

// An operation is what a call of CSI makes the driver do. It can be repeated.
type operation struct {
	name    string
	prepare func(d *driverWorld)
	do      func(d *driverWorld, ctx context.Context) error
	// What holds when it has succeeded: the nodes that are admitted, and the number of volumes and snapshots.
	hosts []string
	lvols int
}

// A driverWorld is a world, and the driver's services for its target.
type driverWorld struct {
	*world
	*volume.Service
	deadly       *deadly
	admit        func(context.Context, string, export.Host) (volume.Exported, error)
	store        volume.Store
	v            volume.Volume
	snap         volume.Snapshot
	hostA, hostB export.Host
}

var operations = []operation{
	{name: "create", lvols: 2, do: func(d *driverWorld, ctx context.Context) error {
		_, err := d.Create(ctx, d.store, volume.Spec{Name: "pvc-2", MinBytes: volumeBytes})
		return err
	}},
	{name: "publish", lvols: 1, hosts: []string{"a"}, do: func(d *driverWorld, ctx context.Context) error {
		_, err := d.admit(ctx, d.v.UUID, d.hostA)
		return err
	}},
	{name: "publish to a second node", lvols: 1, hosts: []string{"a", "b"}, prepare: (*driverWorld).publish, do: func(d *driverWorld, ctx context.Context) error {
		_, err := d.admit(ctx, d.v.UUID, d.hostB)
		return err
	}},
	{name: "unpublish", lvols: 1, prepare: (*driverWorld).publish, do: func(d *driverWorld, ctx context.Context) error {
		return d.Unexport(ctx, d.v.UUID, &d.hostA)
	}},
	{name: "snapshot", lvols: 2, do: func(d *driverWorld, ctx context.Context) (err error) {
		d.snap, err = d.Snapshot(ctx, "snapshot-1", d.v.UUID)
		return err
	}},
	{name: "restore", lvols: 3, prepare: (*driverWorld).takeSnapshot, do: func(d *driverWorld, ctx context.Context) error {
		_, err := d.Clone(ctx, volume.Origin{UUID: d.snap.UUID, Snapshot: true}, volume.Spec{Name: "pvc-2", MinBytes: volumeBytes, Class: class.Class{Clear: class.ClearUnmap}})
		return err
	}},
	{name: "expand", lvols: 1, do: func(d *driverWorld, ctx context.Context) error {
		_, err := d.Expand(ctx, d.v.UUID, 2*volumeBytes, 0)
		return err
	}},
	{name: "delete a snapshot", lvols: 1, prepare: (*driverWorld).takeSnapshot, do: func(d *driverWorld, ctx context.Context) error {
		return d.DeleteSnapshot(ctx, d.snap.UUID, nil)
	}},
	{name: "delete", lvols: 0, prepare: func(d *driverWorld) {
		d.publish()
		require.NoError(d.t, d.Unexport(d.t.Context(), d.v.UUID, &d.hostA))
	}, do: func(d *driverWorld, ctx context.Context) error { return d.Delete(ctx, d.v.UUID) }},
}

func (d *driverWorld) create() {
	var err error
	d.v, err = d.Create(d.t.Context(), d.store, volume.Spec{Name: "pvc-1", MinBytes: volumeBytes})
	require.NoError(d.t, err)
}

func (d *driverWorld) publish() {
	_, err := d.admit(d.t.Context(), d.v.UUID, d.hostA)
	require.NoError(d.t, err)
}

func (d *driverWorld) takeSnapshot() {
	var err error
	d.snap, err = d.Snapshot(d.t.Context(), "snapshot-1", d.v.UUID)
	require.NoError(d.t, err)
}

// The target dies after each call that an operation of the driver makes, and starts from the saved file. The operation, when it
// is repeated, succeeds, and what it said holds after another such death. Nothing is left.
func TestTargetDiesInEachOperation(t *testing.T) {
	for _, transport := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(transport), func(t *testing.T) {
			d := newDriverWorld(t, transport)
			for _, o := range operations {
				if transport == export.ISCSI && len(o.hosts) > 1 {
					continue // such volumes are on one node at a time
				}
				points := 0
				for d.dies(o, points+1, false) {
					d.dies(o, points+1, true)
					points++
				}
				t.Logf("%s: the target died after each of %d calls, before and after the answer", o.name, points)
				assert.Positive(t, points, o.name)
			}
		})
	}
}

func newDriverWorld(t *testing.T, transport export.Transport) *driverWorld {
	d := &driverWorld{world: newWorldOrSimulated(t), hostA: drivertest.MultipathHost("a"), hostB: drivertest.MultipathHost("b")}
	require.True(t, d.start())
	d.serve()
	d.call("bdev_aio_create", p{"filename": d.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
	d.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
	port := "4420"
	if transport == export.ISCSI {
		port = "3260"
		d.call("iscsi_create_portal_group", p{"tag": 1, "portals": []p{{"host": "127.0.0.1", "port": port}}}, nil)
	}
	d.settled()
	d.deadly = &deadly{Caller: d.caller, die: func() { d.kill(); d.again() }}
	d.Service = volume.NewTarget(volume.Config{Stores: []string{"lvs0"}, Config: export.Config{Name: "t0", Transport: transport, Listen: []export.Portal{{Addr: "127.0.0.1", Port: port}}}}).
		Service(spdkrpc.NewClient(d.deadly))
	if d.admit = d.Share; transport == export.ISCSI {
		d.admit = d.Export
	}
	stores, err := d.Stores(t.Context())
	require.NoError(t, err)
	d.store = stores[0]
	// What the first export makes for all others stays.
	d.create()
	d.publish()
	d.clear()
	return d
}

// again starts the target with the saved file.
func (d *driverWorld) again() {
	if !d.start(d.saved()...) { // the file may have the namespace of a volume that was just deleted
		require.True(d.t, d.start(d.saved("--json-ignore-init-errors")...))
	}
	d.fresh()
}

// dies makes the target die after the call of an operation with the number at. It reports whether there was such a call.
func (d *driverWorld) dies(o operation, at int, lost bool) bool {
	t, ctx := d.t, d.t.Context()
	before := d.everything()
	d.create()
	if o.prepare != nil {
		o.prepare(d)
	}
	d.deadly.at, d.deadly.lost, d.deadly.calls, d.deadly.method = at, lost, 0, ""
	err := o.do(d, ctx)
	d.deadly.at = 0
	where := fmt.Sprintf("%s: died after call %d (%s, answer lost: %t); the first answer was %v", o.name, at, d.deadly.method, lost, err)
	for deadline := time.Now().Add(long); err != nil; err = o.do(d, ctx) {
		require.True(t, time.Now().Before(deadline), "%s, and then %v", where, err)
		time.Sleep(50 * time.Millisecond)
	}
	if d.deadly.method != "" { // what was answered holds
		d.kill()
		d.again()
	}
	state := d.everything()
	assert.Len(t, state.lvols, len(before.lvols)+o.lvols, where)
	assert.Equal(t, o.hosts, d.admitted(state), where)
	d.clear()
	assert.Equal(t, before, d.everything(), where)
	assert.Empty(t, d.status().Missing, where)
	return d.deadly.method != ""
}

// A things value is what operations can leave on a target.
type things struct {
	free    uint64
	lvols   []string
	exports map[string][]string
	groups  []string // initiators of iSCSI initiator groups
}

func (d *driverWorld) everything() things {
	t, ctx := d.t, d.t.Context()
	stores, err := d.client.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(t, err)
	require.Len(t, stores, 1)
	lvols, err := d.client.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	nodes, err := d.client.ISCSIGetTargetNodes(ctx)
	require.NoError(t, err)
	groups, err := d.client.ISCSIGetInitiatorGroups(ctx)
	require.NoError(t, err)
	s := things{free: stores[0].FreeClusters, exports: d.exported()}
	for _, l := range lvols {
		s.lvols = append(s.lvols, l.Name)
	}
	for _, n := range nodes {
		s.exports[n.Name] = nil
	}
	for _, g := range groups {
		s.groups = append(s.groups, g.Initiators...)
	}
	slices.Sort(s.lvols)
	slices.Sort(s.groups)
	return s
}

// admitted returns the nodes that the target admits to volumes.
func (d *driverWorld) admitted(s things) (nodes []string) {
	var names []string
	for _, hosts := range s.exports {
		names = append(names, hosts...)
	}
	names = append(names, s.groups...)
	for node, h := range map[string]export.Host{"a": d.hostA, "b": d.hostB} {
		if slices.Contains(names, h.NQN) || slices.Contains(names, h.IQN) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// clear removes all volumes as the driver does.
func (d *driverWorld) clear() {
	t, ctx := d.t, d.t.Context()
	require.NoError(t, d.Unexport(ctx, d.v.UUID, nil))
	lvols, err := d.client.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	for _, l := range lvols {
		if err := d.Delete(ctx, l.UUID); !errors.Is(err, volume.ErrWrongKind) {
			require.NoError(t, err, l.Name)
		}
	}
	for _, l := range lvols {
		if err := d.DeleteSnapshot(ctx, l.UUID, nil); !errors.Is(err, volume.ErrWrongKind) {
			require.NoError(t, err, l.Name)
		}
	}
}
