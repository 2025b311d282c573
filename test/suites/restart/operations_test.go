package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/move"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const volumeBytes = 16 << 20

// An operation is a CSI call or an spdk-csi command that can be retried.
type operation struct {
	name    string
	prepare func(d *driverTestbed)
	do      func(d *driverTestbed, ctx context.Context) error
	// The state after success consists of the admitted nodes and the number of volumes and
	// snapshots.
	hosts []string
	lvols int
	holds func(d *driverTestbed)
}

var operations = []operation{
	{name: "CreateVolume", lvols: 2, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.createFrom(ctx, "pvc-2", nil)
		return err
	}},
	{name: "ControllerPublishVolume", lvols: 1, hosts: []string{"a"}, do: func(d *driverTestbed, ctx context.Context) error {
		return d.publish(ctx, "a", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	}},
	{name: "ControllerPublishVolume to a second node", lvols: 1, hosts: []string{"a", "b"}, prepare: func(d *driverTestbed) {
		d.ok(d.publish(d.t.Context(), "a", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY))
	}, do: func(d *driverTestbed, ctx context.Context) error {
		return d.publish(ctx, "b", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
	}},
	{name: "ControllerUnpublishVolume", lvols: 1, prepare: (*driverTestbed).published, do: func(d *driverTestbed, ctx context.Context) error {
		return d.unpublish(ctx, "a")
	}},
	{name: "CreateSnapshot", lvols: 2, do: func(d *driverTestbed, ctx context.Context) error { return d.takeSnapshot(ctx) }},
	{name: "CreateVolume from a snapshot", lvols: 3, prepare: (*driverTestbed).snapshotTaken, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.createFrom(ctx, "pvc-2", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: d.snapshot}}})
		return err
	}},
	{name: "CreateVolume from a volume", lvols: 3, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.createFrom(ctx, "pvc-2", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: d.id}}})
		return err
	}},
	{name: "ControllerExpandVolume", lvols: 1, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: d.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * volumeBytes}, VolumeCapability: capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)})
		return err
	}},
	{name: "ControllerModifyVolume", lvols: 1, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: d.id, MutableParameters: map[string]string{"qosMiBPerSecond": "100"}})
		return err
	}, holds: func(d *driverTestbed) {
		bdevs, err := d.client.BdevGetBdevs(d.t.Context(), spdkrpc.BdevGetBdevsParams{Name: new(d.volumeID().UUID)})
		d.ok(err)
		assert.EqualValues(d.t, 100, bdevs[0].AssignedRateLimits.RWMbytesPerSec)
		d.clear()
		// otherwise, the next start would wait for the volume
		d.call("spdkgate_config_save", nil, nil)
	}},
	{name: "DeleteSnapshot", lvols: 1, prepare: (*driverTestbed).snapshotTaken, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: d.snapshot})
		return err
	}},
	{name: "CreateVolumeGroupSnapshot", lvols: 4, prepare: (*driverTestbed).second, do: func(d *driverTestbed, ctx context.Context) error { return d.takeGroup(ctx) }},
	{name: "DeleteVolumeGroupSnapshot", lvols: 2, prepare: func(d *driverTestbed) {
		d.second()
		d.ok(d.takeGroup(d.t.Context()))
	}, do: func(d *driverTestbed, ctx context.Context) error {
		return d.deleteGroup(ctx)
	}},
	{name: "DeleteVolume", prepare: func(d *driverTestbed) {
		d.published()
		d.ok(d.unpublish(d.t.Context(), "a"))
	}, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: d.id})
		return err
	}},
	{name: "fence", lvols: 1, prepare: (*driverTestbed).published, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.target().Fence(ctx, controller.HostOf("a"), "a", false)
		return err
	}, holds: func(d *driverTestbed) {
		assert.ErrorIs(d.t, d.publish(d.t.Context(), "a", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), export.ErrFenced)
	}},
	{name: "unfence", lvols: 1, prepare: func(d *driverTestbed) {
		_, err := d.target().Fence(d.t.Context(), controller.HostOf("a"), "a", false)
		d.ok(err)
	}, do: func(d *driverTestbed, ctx context.Context) error {
		_, err := d.target().Unfence(ctx, controller.HostOf("a"), false)
		return err
	}, holds: (*driverTestbed).published},
	{name: "move", lvols: 2, do: func(d *driverTestbed, ctx context.Context) error { return d.copyElsewhere(ctx) }, holds: func(d *driverTestbed) {
		assert.ErrorIs(d.t, d.publish(d.t.Context(), "a", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), export.ErrInUse, "the original")
	}},
	{name: "move --keep-original", lvols: 2, prepare: (*driverTestbed).copied, do: func(d *driverTestbed, ctx context.Context) error {
		return d.mover().Keep(ctx, d.volumeID())
	}, holds: (*driverTestbed).published},
	{name: "move --delete-original", lvols: 1, prepare: (*driverTestbed).copied, do: func(d *driverTestbed, ctx context.Context) error {
		copied, err := request.ParseVolumeID(d.copy.GetVolumeId())
		d.ok(err)
		switch err = d.mover().DeleteOriginal(ctx, d.volumeID(), copied, nil); {
		case errors.Is(err, volume.ErrNotFound):
			return nil // an administrator who retries sees this error
		case errors.Is(err, move.ErrNotLocked): // an interrupted call has unlocked it; the error asks to delete it by hand
			_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: d.id})
			return err
		case errors.Is(err, move.ErrUnfinished): // the error asks to repeat the move
			return errors.Join(err, d.copyElsewhere(ctx))
		default:
			return err
		}
	}},
}

func (d *driverTestbed) ok(err error) {
	d.t.Helper()
	require.NoError(d.t, err)
}

// eventually repeats a driver's call until it succeeds, because the proxy may not be able to save
// the configuration shortly after the target has started. The driver's calls can be repeated.
func (d *driverTestbed) eventually(call func() error) {
	d.t.Helper()
	err := call()
	for deadline := time.Now().Add(long); err != nil && time.Now().Before(deadline); err = call() {
		time.Sleep(50 * time.Millisecond)
	}
	d.ok(err)
}

func capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}, AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
}

// without this parameter, releases before v24.05 cannot clone
var parameters = map[string]string{"clearMethod": string(class.ClearUnmap)}

func (d *driverTestbed) createFrom(ctx context.Context, name string, source *csi.VolumeContentSource) (id string, err error) {
	v, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: volumeBytes}, VolumeContentSource: source, Parameters: parameters,
		VolumeCapabilities: []*csi.VolumeCapability{capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)},
	})
	return v.GetVolume().GetVolumeId(), err
}

func (d *driverTestbed) publish(ctx context.Context, node string, mode csi.VolumeCapability_AccessMode_Mode) error {
	_, err := d.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: d.id, NodeId: node, VolumeCapability: capability(mode)})
	return err
}

func (d *driverTestbed) published() {
	d.eventually(func() error {
		return d.publish(d.t.Context(), "a", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	})
}

func (d *driverTestbed) unpublish(ctx context.Context, node string) error {
	_, err := d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: d.id, NodeId: node})
	return err
}

func (d *driverTestbed) takeSnapshot(ctx context.Context) error {
	s, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: d.id})
	d.snapshot = s.GetSnapshot().GetSnapshotId()
	return err
}

func (d *driverTestbed) snapshotTaken() {
	d.eventually(func() error { return d.takeSnapshot(d.t.Context()) })
}

// second creates a second volume.
func (d *driverTestbed) second() {
	d.eventually(func() (err error) {
		d.otherID, err = d.createFrom(d.t.Context(), "pvc-2", nil)
		return err
	})
}

func (d *driverTestbed) takeGroup(ctx context.Context) error {
	g, err := d.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "group-1", SourceVolumeIds: []string{d.id, d.otherID}})
	d.group = g.GetGroupSnapshot()
	return err
}

func (d *driverTestbed) deleteGroup(ctx context.Context) error {
	var ids []string
	for _, s := range d.group.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	_, err := d.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: d.group.GetGroupSnapshotId(), SnapshotIds: ids})
	return err
}

func (d *driverTestbed) volumeID() request.VolumeID {
	id, err := request.ParseVolumeID(d.id)
	d.ok(err)
	return id
}

func (d *driverTestbed) mover() move.Mover {
	return move.Mover{Controller: d.Controller, Connector: func(string) (connect.Connector, error) { return files{dir: d.dir}, nil }, Filesystem: true}
}

func (d *driverTestbed) copyElsewhere(ctx context.Context) error {
	// The target cannot determine whether a thick volume was written to, so it does not matter that
	// the connector files does not write to the target's volumes.
	r, err := d.mover().Copy(ctx, d.volumeID(), nil, map[string]string{"thin": "false"})
	d.copy = r.Volume
	return err
}

func (d *driverTestbed) copied() {
	d.eventually(func() error { return d.copyElsewhere(d.t.Context()) })
}

// files is a connector for this machine that does not connect to the target. Instead, each volume's
// data is in a file.
type files struct {
	connect.Connector
	dir string
}

func (f files) Connect(_ context.Context, e connect.Export) (connect.Device, error) {
	path := filepath.Join(f.dir, fmt.Sprintf("data%x", e.NQN+e.IQN))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(file.Truncate(volumeBytes), file.Close())
	}
	return connect.Device{Path: path}, err
}

func (files) Disconnect(context.Context, connect.Export) error { return nil }
