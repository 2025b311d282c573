package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func (b *testController) snapshot(t *testing.T, name string, of *csi.Volume) *csi.Snapshot {
	t.Helper()
	resp, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: of.GetVolumeId(), Secrets: b.secrets})
	require.NoError(t, err)
	return resp.GetSnapshot()
}

func TestSnapshotsAreTakenAndDeleted(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	in := func(target, name string) *csi.Volume {
		req := b.request(name, 4*mib)
		req.Parameters = map[string]string{"target": target}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		return resp.GetVolume()
	}
	v, w := in("t0", "pvc-1"), in("t1", "pvc-2")
	s := b.snapshot(t, "snapshot-1", v)
	assert.Equal(t, v.GetVolumeId(), s.GetSourceVolumeId())
	assert.Equal(t, int64(4*mib), s.GetSizeBytes())
	assert.True(t, s.GetReadyToUse())
	second := b.snapshot(t, "snapshot-1", v)
	assert.Equal(t, s.GetSnapshotId(), second.GetSnapshotId())
	assert.Equal(t, s.GetCreationTime().AsTime(), second.GetCreationTime().AsTime())
	x := in("t0", "pvc-1b")
	_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: x.GetVolumeId(), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err), "t0")
	before := b.targets[0].calls
	b.snapshot(t, "snapshot-2", w)
	assert.Equal(t, before, b.targets[0].calls, "other targets are not called: calling them could not prevent a later snapshot with this name")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: v.GetVolumeId()})
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "csi.storage.k8s.io/snapshotter-secret-name")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: "t0:" + uuid.NewString(), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets, Parameters: map[string]string{"fsType": "ext4"}})
	require.NoError(t, err, "the example of SPDK's spdk-csi")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "y", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets, Parameters: map[string]string{"fast": "yes"}})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "fast")

	restored := func(name string, size int64) (*csi.CreateVolumeResponse, error) {
		req := b.request(name, size)
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()}}}
		return b.CreateVolume(t.Context(), req)
	}
	c, err := restored("pvc-3", 9*mib)
	require.NoError(t, err)
	assert.Equal(t, int64(12*mib), c.GetVolume().GetCapacityBytes())
	assert.Equal(t, "false", c.GetVolume().GetVolumeContext()[request.KeyMayFormat])
	published, err := b.publish(t.Context(), c.GetVolume(), nodeA)
	require.NoError(t, err)
	assert.Equal(t, "false", published.GetPublishContext()[request.KeyMayFormat])
	require.NoError(t, b.unpublish(t.Context(), c.GetVolume().GetVolumeId(), nodeA))
	_, err = restored("pvc-1", 4*mib)
	drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err))

	_, err = b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "clones")
	require.NoError(t, b.delete(t.Context(), c.GetVolume().GetVolumeId()))
	for range 2 {
		_, err = b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
		require.NoError(t, err)
	}
	_, err = restored("pvc-4", 4*mib)
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
}

func TestUnsuitableCloneClassesAreRejected(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"))
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"lvstore": "lvs0"}
	v, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	for key, value := range map[string]string{"thin": "false", "lvstore": "lvs1"} {
		req := b.request("pvc-2", 4*mib)
		req.Parameters = map[string]string{key: value}
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolume().GetVolumeId()}}}
		_, err := b.CreateVolume(t.Context(), req)
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), key)
	}
	assert.Len(t, b.targets[0].lvols(t), 1)
}

// A deletion that waited in vain for a read of changes fails with a code after which Kubernetes
// retries, and the retry succeeds.
func TestDeletionsBesideReadsOfChangesAreRetried(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	for _, remove := range []func() error{
		func() error {
			_, err := b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: b.second, Secrets: b.secrets})
			return err
		},
		func() error {
			_, err := b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: b.volume, Secrets: b.secrets})
			return err
		},
	} {
		target.Inject(spdktest.Fault{Method: "bdev_lvol_delete", Do: spdktest.Fail, Error: jsonrpc.Errorf(jsonrpc.CodeTooMany, "another call is using the volume. Nothing was executed; retry.")})
		err := driver.Status(remove())
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		assert.ErrorContains(t, err, "another call is using the volume. Nothing was executed; retry.")
		require.NoError(t, remove())
	}
}
