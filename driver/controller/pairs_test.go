package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
)

// A world contains the objects of calls that interfere with each other: a volume, its clone and its
// snapshot.
type world struct {
	*crashBench
	volume, clone *csi.Volume
	snapshot      *csi.Snapshot
	class         map[string]string // the class of new clones
}

// A pairCall is a call on a world. It returns the id of the object that it has created or deleted.
type pairCall struct {
	name    string
	deletes bool
	do      func(ctx context.Context, w world) (id string, err error)
}

var pairCalls = []pairCall{
	{"clone the volume", false, func(ctx context.Context, w world) (string, error) {
		return w.createCall("pvc-3", 4*mib, w.class, fromVolume(w.volume))(ctx)
	}},
	{"clone the clone", false, func(ctx context.Context, w world) (string, error) {
		return w.createCall("pvc-4", 4*mib, w.class, fromVolume(w.clone))(ctx)
	}},
	{"restore the snapshot", false, func(ctx context.Context, w world) (string, error) {
		return w.createCall("pvc-5", 4*mib, w.class, fromSnapshot(w.snapshot))(ctx)
	}},
	{"take a snapshot of the volume", false, func(ctx context.Context, w world) (string, error) {
		resp, err := w.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s-2", SourceVolumeId: w.volume.GetVolumeId(), Secrets: w.secrets})
		return resp.GetSnapshot().GetSnapshotId(), err
	}},
	{"take a snapshot of the clone", false, func(ctx context.Context, w world) (string, error) {
		resp, err := w.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s-3", SourceVolumeId: w.clone.GetVolumeId(), Secrets: w.secrets})
		return resp.GetSnapshot().GetSnapshotId(), err
	}},
	{"delete the volume", true, func(ctx context.Context, w world) (string, error) {
		return w.volume.GetVolumeId(), w.delete(ctx, w.volume.GetVolumeId())
	}},
	{"delete the clone", true, func(ctx context.Context, w world) (string, error) {
		return w.clone.GetVolumeId(), w.delete(ctx, w.clone.GetVolumeId())
	}},
	{"delete the snapshot", true, func(ctx context.Context, w world) (string, error) {
		_, err := w.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: w.snapshot.GetSnapshotId(), Secrets: w.secrets})
		return w.snapshot.GetSnapshotId(), err
	}},
	{"expand the volume", false, func(ctx context.Context, w world) (string, error) {
		_, err := w.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: w.volume.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * mib}, Secrets: w.secrets})
		return w.volume.GetVolumeId(), err
	}},
	{"publish the volume", false, func(ctx context.Context, w world) (string, error) {
		_, err := w.publish(ctx, w.volume, nodeA)
		return w.volume.GetVolumeId(), err
	}},
	{"publish the volume elsewhere", false, func(ctx context.Context, w world) (string, error) {
		_, err := w.publish(ctx, w.volume, nodeB)
		return w.volume.GetVolumeId(), err
	}},
	{"take a group snapshot", false, func(ctx context.Context, w world) (string, error) {
		g, err := w.groupSnapshot(ctx, "g-1", w.volume, w.clone)
		if err != nil {
			return "", err
		}
		return g.GetSnapshots()[0].GetSnapshotId(), nil
	}},
	{"doctor --fix", true, func(ctx context.Context, w world) (string, error) {
		found, err := w.examination().Run(ctx)
		for _, f := range found {
			if f.Repair != "" {
				_ = f.Apply(ctx) // fails if the object is in use
			}
		}
		return "", err
	}},
}

// TestPairsOfCallsLeaveAConsistentState lets another controller overtake each call, at each of its
// RPCs, with every other call. A reported result must remain valid unless the other call deletes
// the object, and nothing may be left behind after all objects have been deleted.
func TestPairsOfCallsLeaveAConsistentState(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	points := 0
	for _, slow := range pairCalls {
		for _, fast := range pairCalls {
			if slow.name == fast.name {
				continue // TestCSICallsSurviveCrashes covers this
			}
			t.Run(slow.name+"/"+fast.name, func(t *testing.T) {
				for at, more := 1, true; more; at++ {
					points++
					t.Run(fmt.Sprint("call ", at), func(t *testing.T) { more = tryPair(t, slow, fast, at) })
				}
			})
		}
	}
	t.Logf("%d points", points)
}

// tryPair makes the slow call, and makes the fast call just before the at-th RPC of the slow call.
// It returns false if the slow call ends before its at-th RPC.
func tryPair(t *testing.T, slow, fast pairCall, at int) (overtook bool) {
	b := newCrashBench(t, config.TargetNVMeTCP)
	start := b.state(t)
	w := world{crashBench: b, volume: b.create(t, "pvc-1", 4*mib), class: b.zeroed(t)}
	w.clone = b.clone(t, "pvc-2", w.volume)
	w.snapshot = b.snapshot(t, "s-1", w.volume)

	var made string
	var failed error
	var overtaking sync.WaitGroup // the slow call does not wait for RPCs that it no longer needs
	b.target.overtake = func() {
		overtaking.Add(1)
		defer overtaking.Done()
		mine := b.Controller
		defer func() { b.Controller = mine }()
		b.startController(t)
		overtook = true
		made, failed = fast.do(t.Context(), w)
	}
	b.target.strike(at, overtaken)
	id, err := slow.do(t.Context(), w)
	overtaking.Wait()
	b.target.strike(0, "")
	if !overtook {
		return false
	}
	there := b.listed(t)
	type outcome struct {
		pairCall
		id  string
		err error
	}
	outcomes := []outcome{{slow, id, err}, {fast, made, failed}}
	for i, c := range outcomes {
		other := outcomes[1-i]
		switch code := driver.Code(c.err); {
		case c.err != nil:
			assert.NotContains(t, []codes.Code{codes.Internal, codes.Unknown}, code, "%s: %v", c.name, c.err)
		case c.deletes:
			assert.NotContains(t, there, c.id, c.name)
		case !other.deletes || other.err != nil || other.id != c.id:
			assert.Contains(t, there, c.id, c.name)
		}
	}
	hosts := b.hosts(w.volume)
	assert.False(t, strings.Contains(hosts, HostOf(nodeA).NQN) && strings.Contains(hosts, HostOf(nodeB).NQN), "two nodes are admitted: %s", hosts)
	for _, node := range []string{nodeA, nodeB} { // the volume may no longer be listed
		b.until(t, "unpublish", func(ctx context.Context) error { return b.unpublish(ctx, w.volume.GetVolumeId(), node) })
	}
	b.deleteAll(t)
	assert.Equal(t, start, b.state(t), "nothing is left")
	return true
}

// listed returns the ids of all volumes and snapshots.
func (b *crashBench) listed(t *testing.T) (ids []string) {
	t.Helper()
	volumes, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	for _, e := range volumes.GetEntries() {
		ids = append(ids, e.GetVolume().GetVolumeId())
	}
	snapshots, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	require.NoError(t, err)
	for _, e := range snapshots.GetEntries() {
		ids = append(ids, e.GetSnapshot().GetSnapshotId())
	}
	return ids
}
