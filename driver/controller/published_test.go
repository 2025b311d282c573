package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// published lists the nodes of each volume. It requires that ListVolumes and ControllerGetVolume
// report the same nodes.
func (b *testController) published(t *testing.T) map[string][]string {
	t.Helper()
	list, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	nodes := map[string][]string{}
	for _, e := range list.GetEntries() {
		id := e.GetVolume().GetVolumeId()
		nodes[id] = e.GetStatus().GetPublishedNodeIds()
		v, err := b.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
		require.NoError(t, err)
		assert.Equal(t, nodes[id], v.GetStatus().GetPublishedNodeIds())
	}
	return nodes
}

// Kubernetes publishes a volume again if ListVolumes does not report it as published, for example
// after a target has restarted without its exports. ListVolumes must be correct even after a
// restart of the controller, when the controller does not know the names of the nodes.
func TestPublishedNodesAreListed(t *testing.T) {
	for _, transport := range []string{"nvme-tcp", "iscsi"} {
		t.Run(transport, func(t *testing.T) {
			target := newSimTarget(t, "t0", "lvs0")
			b := newTestControllerWith(t, transport, target)
			b.withCredentials(t)
			v, w := b.create(t, "pvc-1", 4*mib), b.create(t, "pvc-2", 4*mib)
			none := map[string][]string{v.GetVolumeId(): nil, w.GetVolumeId(): nil}
			assert.Equal(t, none, b.published(t))
			publish := func() {
				_, err := b.publish(t.Context(), v, nodeA)
				require.NoError(t, err)
				_, err = b.publish(t.Context(), w, nodeB)
				require.NoError(t, err)
			}
			publish()
			both := map[string][]string{v.GetVolumeId(): {nodeA}, w.GetVolumeId(): {nodeB}}
			assert.Equal(t, both, b.published(t))

			lose := func(id string) {
				uuid := id[len("t0:"):]
				if transport == "iscsi" {
					require.NoError(t, target.rpc.ISCSIDeleteTargetNode(t.Context(), spdkrpc.ISCSIDeleteTargetNodeParams{Name: export.IQN(uuid)}))
				} else {
					require.NoError(t, target.rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: export.NQN(uuid)}))
				}
			}
			lose(v.GetVolumeId())
			lose(w.GetVolumeId())
			assert.Equal(t, none, b.published(t), "the target came back without exports")
			publish()
			assert.Equal(t, both, b.published(t))

			b.nodes = &nodeNames{} // the controller restarts
			assert.Equal(t, none, b.published(t))
			publish()
			assert.Equal(t, both, b.published(t))
			require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
			assert.Equal(t, map[string][]string{v.GetVolumeId(): nil, w.GetVolumeId(): {nodeB}}, b.published(t))
		})
	}
}

// If the export of a volume lacks a listener, the volume is not listed as published, because nodes
// cannot use the export.
func TestIncompleteExportIsNotListed(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	b.withCredentials(t)
	v := b.create(t, "pvc-1", 4*mib)
	_, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	require.NoError(t, target.rpc.NVMfSubsystemRemoveListener(t.Context(), spdkrpc.NVMfSubsystemRemoveListenerParams{
		NQN: export.NQN(v.GetVolumeId()[len("t0:"):]), ListenAddress: spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: new("4420")},
	}))
	assert.Equal(t, map[string][]string{v.GetVolumeId(): nil}, b.published(t))
}

// Snapshots taken by SPDK's spdk-csi are listed with their source volumes.
func TestSnapshotsOfSPDKCSIAreListed(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	v := b.create(t, "pvc-1", 4*mib)
	var want []string
	for _, name := range []string{"snapshot-1", "snapshot-2"} {
		uuid, err := target.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: "lvs0/pvc-1", SnapshotName: name})
		require.NoError(t, err)
		want = append(want, request.VolumeID{Target: "t0", UUID: uuid}.String())
	}
	want = append(want, b.snapshot(t, "ours", v).GetSnapshotId())
	other := b.create(t, "pvc-2", 4*mib)
	b.snapshot(t, "of another", other)
	list, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
	require.NoError(t, err)
	var got []string
	for _, e := range list.GetEntries() {
		got = append(got, e.GetSnapshot().GetSnapshotId())
		assert.Equal(t, v.GetVolumeId(), e.GetSnapshot().GetSourceVolumeId())
		one, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SnapshotId: e.GetSnapshot().GetSnapshotId(), SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
		require.NoError(t, err)
		require.Len(t, one.GetEntries(), 1)
	}
	assert.ElementsMatch(t, want, got)
	all, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{Secrets: b.secrets})
	require.NoError(t, err)
	assert.Len(t, all.GetEntries(), 4)
}

// The controller reports the health of a volume as its target reports it. If the target is
// unresponsive, the call fails instead of reporting a health condition.
func TestVolumeHealthReachesKubernetes(t *testing.T) {
	target, other := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	b := newTestControllerOf(t, config.Config{Placement: config.Placement{ThinOvercommit: 100, ReservePercent: new(0.0)}}, target, other)
	b.withCredentials(t)
	on := func(name, target, thin string, size int64) *csi.Volume {
		req := b.request(name, size)
		req.Parameters = map[string]string{"target": target, "thin": thin}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		return resp.GetVolume()
	}
	thin := on("thin", "t0", "true", 4*mib)
	healthy := on("healthy", "t1", "true", 4*mib)
	capacity, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"target": "t0", "thin": "false"}})
	require.NoError(t, err)
	on("thick", "t0", "false", capacity.GetMaximumVolumeSize().GetValue())

	list, err := b.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 1)
	assert.Equal(t, thin.GetVolumeId(), list.GetEntries()[0].GetVolumeId())
	one, err := b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: thin.GetVolumeId()})
	require.NoError(t, err)
	assert.Equal(t, list.GetEntries()[0].GetHealthStatuses(), one.GetVolumeHealth().GetHealthStatuses())
	require.Len(t, one.GetVolumeHealth().GetHealthStatuses(), 1)
	assert.Equal(t, csi.VolumeHealthErrorType_DEGRADED, one.GetVolumeHealth().GetHealthStatuses()[0].GetStatus())
	assert.Equal(t, "LvstoreFull", one.GetVolumeHealth().GetHealthStatuses()[0].GetReason())
	one, err = b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: healthy.GetVolumeId()})
	require.NoError(t, err)
	assert.Empty(t, one.GetVolumeHealth().GetHealthStatuses())

	require.NoError(t, target.rpc.BdevMallocDelete(t.Context(), spdkrpc.BdevMallocDeleteParams{Name: "disk-lvs0"}))
	one, err = b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: thin.GetVolumeId()})
	require.NoError(t, err)
	require.Len(t, one.GetVolumeHealth().GetHealthStatuses(), 1)
	assert.Equal(t, csi.VolumeHealthErrorType_INACCESSIBLE, one.GetVolumeHealth().GetHealthStatuses()[0].GetStatus())
	other.replace(t, nil)
	_, err = b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: healthy.GetVolumeId()})
	assert.Contains(t, []codes.Code{codes.Unavailable, codes.Aborted}, driver.Code(err), "%v", err)
	for id, want := range map[string]codes.Code{"": codes.InvalidArgument, "t0:not-a-uuid": codes.NotFound} {
		_, err := b.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		drivertest.RequireCode(t, want, driver.Status(err))
	}
}
