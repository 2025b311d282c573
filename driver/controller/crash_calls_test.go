package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A csiCall is a CSI call for fault injection. prepare returns the call, which can be repeated and
// returns the same response each time.
type csiCall struct {
	name     string
	attached bool // the call concerns exports, which depend on the transport
	prepare  func(t *testing.T, b *crashBench) func(ctx context.Context) (string, error)
}

func (b *crashBench) createCall(name string, size int64, parameters map[string]string, from *csi.VolumeContentSource) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		req := b.request(name, size)
		req.Parameters, req.VolumeContentSource = parameters, from
		resp, err := b.CreateVolume(ctx, req)
		return resp.GetVolume().GetVolumeId(), err
	}
}

func fromVolume(v *csi.Volume) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolumeId()}}}
}

func fromSnapshot(s *csi.Snapshot) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()}}}
}

// createShared creates a volume for several nodes, and publishes it to the first node.
func (b *crashBench) createShared(t *testing.T) *csi.Volume {
	t.Helper()
	v, err := b.createFor(t, "pvc-1", sharedBlock)
	require.NoError(t, err)
	require.NoError(t, b.publishShared(t.Context(), v, nodeA))
	return v
}

func (b *crashBench) publishShared(ctx context.Context, v *csi.Volume, node string) error {
	_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: sharedBlock, Secrets: b.secrets})
	return err
}

// hosts returns the hosts that the target allows to use a volume.
func (b *crashBench) hosts(v *csi.Volume) string {
	_, id, _ := strings.Cut(v.GetVolumeId(), ":")
	subs, err := b.target.rpc.NVMfGetSubsystems(context.Background(), spdkrpc.NVMfGetSubsystemsParams{NQN: new(export.NQN(id))})
	if err != nil {
		return "not exported"
	}
	return fmt.Sprint(subs[0].Hosts)
}

// weakest is the only class whose volumes every release can clone, because releases before v24.05
// do not record a clear method for clones.
var weakest = map[string]string{"clearMethod": "unmap-may-expose-deleted-data"}

// zeroed returns the strongest class whose volumes the target can clone.
func (b *crashBench) zeroed(t *testing.T) map[string]string {
	if b.largerBytes(t) == 4*mib {
		return weakest
	}
	return map[string]string{"clearMethod": "write_zeroes"}
}

// largerBytes returns the size for copies of 4 MiB volumes. On releases before v24.05, a copy
// cannot be larger than its source.
func (b *crashBench) largerBytes(t *testing.T) int64 {
	t.Helper()
	release, err := b.target.rpc.Release(t.Context())
	require.NoError(t, err)
	if release.Before(rpcschema.MustRelease("v24.05")) {
		return 4 * mib
	}
	return 10 * mib
}

func (b *crashBench) clone(t *testing.T, name string, of *csi.Volume) *csi.Volume {
	t.Helper()
	id, err := b.createCall(name, 4*mib, weakest, fromVolume(of))(t.Context())
	require.NoError(t, err)
	return &csi.Volume{VolumeId: id}
}

var csiCalls = []csiCall{
	{"create", false, func(_ *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-1", 5*mib, nil, nil)
	}},
	{"create thick, limited", false, func(_ *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-1", 5*mib, map[string]string{"thin": "false", "qosIOPS": "5000"}, nil)
	}},
	{"restore, larger", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-2", b.largerBytes(t), weakest, fromSnapshot(b.snapshot(t, "s-1", b.create(t, "pvc-1", 4*mib))))
	}},
	{"clone, larger", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-2", b.largerBytes(t), weakest, fromVolume(b.create(t, "pvc-1", 4*mib)))
	}},
	{"restore, zeroed when deleted", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-2", b.largerBytes(t), b.zeroed(t), fromSnapshot(b.snapshot(t, "s-1", b.create(t, "pvc-1", 4*mib))))
	}},
	{"clone, zeroed when deleted", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		return b.createCall("pvc-2", b.largerBytes(t), b.zeroed(t), fromVolume(b.create(t, "pvc-1", 4*mib)))
	}},
	{"expand", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		return func(ctx context.Context) (string, error) {
			resp, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * mib}, Secrets: b.secrets})
			return fmt.Sprint(resp.GetCapacityBytes()), err
		}
	}},
	{"modify", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		return func(ctx context.Context) (string, error) {
			_, err := b.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: v.GetVolumeId(), MutableParameters: map[string]string{"qosIOPS": "5000"}, Secrets: b.secrets})
			return "", err
		}
	}},
	{"publish", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		return func(ctx context.Context) (string, error) {
			_, err := b.publish(ctx, v, nodeA)
			return "", err
		}
	}},
	{"unpublish", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		_, err := b.publish(t.Context(), v, nodeA)
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) { return "", b.unpublish(ctx, v.GetVolumeId(), nodeA) }
	}},
	{"publish to a second node", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.createShared(t)
		return func(ctx context.Context) (string, error) {
			err := b.publishShared(ctx, v, nodeB)
			return b.hosts(v), err
		}
	}},
	{"unpublish from one of two nodes", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.createShared(t)
		require.NoError(t, b.publishShared(t.Context(), v, nodeB))
		return func(ctx context.Context) (string, error) {
			err := b.unpublish(ctx, v.GetVolumeId(), nodeA)
			return b.hosts(v), err
		}
	}},
	{"delete", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		_, err := b.publish(t.Context(), v, nodeA)
		require.NoError(t, err)
		require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
		return func(ctx context.Context) (string, error) { return "", b.delete(ctx, v.GetVolumeId()) }
	}},
	{"delete with snapshots on both sides of a clone", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		c := b.clone(t, "pvc-2", v)
		b.snapshot(t, "s-1", v)
		b.snapshot(t, "s-2", c)
		return func(ctx context.Context) (string, error) { return "", b.delete(ctx, v.GetVolumeId()) }
	}},
	{"delete a clone", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		c := b.clone(t, "pvc-2", b.create(t, "pvc-1", 4*mib))
		return func(ctx context.Context) (string, error) { return "", b.delete(ctx, c.GetVolumeId()) }
	}},
	{"snapshot", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4*mib)
		return func(ctx context.Context) (string, error) {
			resp, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s-1", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
			return resp.GetSnapshot().GetSnapshotId() + resp.GetSnapshot().GetCreationTime().String(), err
		}
	}},
	{"group snapshot", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		v, w := b.create(t, "pvc-1", 4*mib), b.create(t, "pvc-2", 4*mib)
		return func(ctx context.Context) (string, error) {
			g, err := b.groupSnapshot(ctx, "g-1", v, w)
			return g.String(), err
		}
	}},
	{"delete a group snapshot", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		g, err := b.groupSnapshot(t.Context(), "g-1", b.create(t, "pvc-1", 4*mib), b.create(t, "pvc-2", 4*mib))
		require.NoError(t, err)
		return func(ctx context.Context) (string, error) {
			return "", b.deleteGroup(ctx, g.GetGroupSnapshotId(), memberIDsOf(g))
		}
	}},
	{"delete a snapshot", false, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
		s := b.snapshot(t, "s-1", b.create(t, "pvc-1", 4*mib))
		return func(ctx context.Context) (string, error) {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
			return "", err
		}
	}},
}
