package restart

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A driverTestbed is a testbed with a driver's controller, whose calls pass through a relay.
type driverTestbed struct {
	*testbed
	*controller.Controller
	relay *relay

	id, otherID, snapshot string // of volumes and a snapshot
	group                 *csi.VolumeGroupSnapshot
	copy                  *csi.Volume
}

// The target is killed after each call that one of the driver's operations makes, and starts from
// the saved file. The operation must succeed when it is retried, and its result must survive
// another kill. There must be no leftover objects.
func TestObjectsSurviveTargetDeathInEachOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for _, transport := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(transport), func(t *testing.T) {
			d := newDriverTestbed(t, transport)
			for _, o := range operations {
				if transport == export.ISCSI && len(o.hosts) > 1 {
					continue // such volumes are on one node at a time
				}
				points, began := 0, time.Now()
				for d.dies(o, points+1, false) {
					d.dies(o, points+1, true)
					points++
				}
				t.Logf("%s: the target died after each of %d calls, before and after the response (%.1f s)", o.name, points, time.Since(began).Seconds())
				assert.Positive(t, points, o.name)
			}
		})
	}
}

func newDriverTestbed(t *testing.T, transport export.Transport) *driverTestbed {
	d := &driverTestbed{testbed: newTestbedOrSimulated(t)}
	require.True(t, d.start())
	d.serve()
	d.call("bdev_aio_create", p{"filename": d.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
	d.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
	node := p{"name": "t0", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "targetPort": "4420", "lvstores": []string{"lvs0"}}
	if transport == export.ISCSI {
		node["targetType"], node["targetPort"] = "iscsi", "3260"
		d.call("iscsi_create_portal_group", p{"tag": 1, "portals": []p{{"host": "127.0.0.1", "port": "3260"}}}, nil)
	}
	d.awaitSaved()
	d.relay, node["rpcURL"] = d.newRelay(func() { d.kill(); d.again() })
	d.Controller = d.controller(node)
	// The objects that the first export creates for all later exports are kept.
	d.create()
	d.published()
	d.clear()
	return d
}

func (d *driverTestbed) create() {
	d.eventually(func() (err error) {
		d.id, err = d.createFrom(d.t.Context(), "pvc-1", nil)
		return err
	})
}

// target returns the driver's interfaces to the target.
func (d *driverTestbed) target() doctor.Target {
	d.t.Helper()
	targets, err := d.DoctorTargets()
	d.ok(err)
	return targets[0]
}

// again restarts the target with the saved file.
func (d *driverTestbed) again() {
	if !d.start(d.saved()...) { // the file may contain the namespace of a volume that was just deleted
		require.True(d.t, d.start(d.saved("--json-ignore-init-errors")...))
	}
	d.fresh()
}

// dies kills the target after an operation's call number at. The result reports whether the
// operation made that many calls.
func (d *driverTestbed) dies(o operation, at int, lost bool) bool {
	t, ctx := d.t, d.t.Context()
	before := d.everything()
	d.create()
	if o.prepare != nil {
		o.prepare(d)
	}
	d.relay.killAfter(at, lost)
	err := o.do(d, ctx)
	method := d.relay.method
	d.relay.at = 0
	where := fmt.Sprintf("%s: target killed after call %d (%s, response lost: %t); the first response was %v", o.name, at, method, lost, err)
	for deadline := time.Now().Add(long); err != nil; err = o.do(d, ctx) {
		require.True(t, time.Now().Before(deadline), "%s, and then %v", where, err)
		time.Sleep(50 * time.Millisecond)
	}
	if method != "" { // the result reported earlier still holds
		d.kill()
		d.again()
	}
	state := d.everything()
	assert.Len(t, state.lvols, len(before.lvols)+o.lvols, where)
	assert.Equal(t, o.hosts, d.admitted(state), where)
	if o.holds != nil {
		o.holds(d)
	}
	d.clear()
	assert.Equal(t, before, d.everything(), where)
	assert.Empty(t, d.status().Missing, where)
	return method != ""
}

// things lists the objects that operations can leave on a target.
type things struct {
	free    uint64
	lvols   []string
	exports map[string][]string
	groups  []string // initiators of iSCSI initiator groups
}

func (d *driverTestbed) everything() things {
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
	for _, g := range groups {
		s.groups = append(s.groups, g.Initiators...)
	}
	for _, n := range nodes {
		s.exports[n.Name] = nil
		for _, g := range groups {
			if slices.ContainsFunc(n.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return m.IGTag == g.Tag }) {
				s.exports[n.Name] = append(s.exports[n.Name], g.Initiators...)
			}
		}
	}
	slices.Sort(s.lvols)
	slices.Sort(s.groups)
	return s
}

// admitted returns the nodes that have access to volumes on the target.
func (d *driverTestbed) admitted(s things) (nodes []string) {
	var names []string
	for _, hosts := range s.exports {
		names = append(names, hosts...)
	}
	for _, node := range []string{"a", "b"} {
		if h := controller.HostOf(node); slices.Contains(names, h.NQN) || slices.Contains(names, h.IQN) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// clear removes everything with the driver, as an administrator does.
func (d *driverTestbed) clear() {
	ctx := d.t.Context()
	d.eventually(func() error {
		_, err := d.target().Unfence(ctx, controller.HostOf("a"), false)
		return err
	})
	if d.group != nil {
		d.eventually(func() error { return d.deleteGroup(ctx) })
		d.group = nil
	}
	lvols, err := d.client.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	d.ok(err)
	for _, l := range lvols {
		if l.IsSnapshot {
			continue
		}
		id := request.VolumeID{Target: "t0", UUID: l.UUID}.String()
		for _, node := range []string{"a", "b", ""} {
			d.eventually(func() error {
				_, err := d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
				return err
			})
		}
		d.eventually(func() error {
			_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
			return err
		})
	}
	for _, l := range lvols {
		if l.IsSnapshot {
			d.eventually(func() error {
				_, err := d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: request.VolumeID{Target: "t0", UUID: l.UUID}.String()})
				return err
			})
		}
	}
}
