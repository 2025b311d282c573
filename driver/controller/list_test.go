package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
)

// withCredentials gives the controller its own credentials.
func (b *testController) withCredentials(t *testing.T) {
	b.credentialsFile = filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(b.credentialsFile, []byte(b.secrets[config.SecretKey]), 0o600))
}

func TestCallsUseTheirOwnCredentials(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), config.CredentialsEnv)
	capabilities := func() int {
		resp, err := b.ControllerGetCapabilities(t.Context(), nil)
		require.NoError(t, err)
		return len(resp.GetCapabilities())
	}
	before := capabilities()
	b.withCredentials(t)
	assert.Equal(t, before+6, capabilities())
	list, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	assert.Equal(t, v.GetVolumeId(), list.GetEntries()[0].GetVolume().GetVolumeId())
	got, err := b.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.GetVolumeId()})
	require.NoError(t, err)
	assert.Equal(t, v.GetCapacityBytes(), got.GetVolume().GetCapacityBytes())
	for id, want := range map[string]codes.Code{"": codes.InvalidArgument, "t0:not-a-uuid": codes.NotFound, "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d": codes.NotFound} {
		_, err := b.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
		drivertest.RequireCode(t, want, driver.Status(err))
	}
	b.secrets = nil
	_, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
}

func TestCapacityIsReported(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	b.withCredentials(t)
	get := func(parameters map[string]string) *csi.GetCapacityResponse {
		resp, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: parameters})
		require.NoError(t, err)
		return resp
	}
	all := get(nil)
	one := get(map[string]string{"target": "t1"})
	assert.Equal(t, 3*one.GetAvailableCapacity(), all.GetAvailableCapacity())
	assert.Equal(t, int64(4*mib), all.GetMinimumVolumeSize().GetValue())
	req := b.request("pvc-1", 100*mib)
	req.Parameters = map[string]string{"target": "t1", "thin": "false"}
	_, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	left := get(req.Parameters)
	assert.Equal(t, one.GetAvailableCapacity()-100*mib, left.GetAvailableCapacity())
	assert.Equal(t, left.GetAvailableCapacity(), left.GetMaximumVolumeSize().GetValue())
	thin := get(map[string]string{"target": "t1"})
	assert.Equal(t, one.GetMaximumVolumeSize().GetValue(), thin.GetMaximumVolumeSize().GetValue(), "a thin volume may be as large as the store")
	resp, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, false)}})
	require.NoError(t, err)
	assert.Zero(t, resp.GetAvailableCapacity())
}

func TestVolumesAndSnapshotsAreListed(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	b.withCredentials(t)
	want := map[string]bool{}
	var volumes []*csi.Volume
	for i := range 7 {
		v := b.create(t, fmt.Sprintf("pvc-%d", i), 4*mib)
		volumes = append(volumes, v)
		want[v.GetVolumeId()] = true
	}
	for most := range int32(9) {
		got := map[string]bool{}
		for token := ""; ; {
			resp, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: most, StartingToken: token})
			require.NoError(t, err)
			if most > 0 {
				assert.LessOrEqual(t, len(resp.GetEntries()), int(most))
			}
			for _, e := range resp.GetEntries() {
				assert.False(t, got[e.GetVolume().GetVolumeId()])
				got[e.GetVolume().GetVolumeId()] = true
			}
			if token = resp.GetNextToken(); token == "" {
				break
			}
		}
		assert.Equal(t, want, got, most)
	}
	for _, target := range b.targets {
		target.ForgetCalls()
	}
	_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	calls := map[string]int{}
	for _, target := range b.targets {
		for _, call := range target.Calls() {
			calls[call.Method]++
		}
	}
	assert.Equal(t, len(volumes), calls["nvmf_get_subsystems"], "one call for each volume")
	assert.Equal(t, len(b.targets), calls["bdev_get_bdevs"], "only the base bdev of each lvstore: no sizes are read")
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "7"})
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))

	s := b.snapshot(t, "s-1", volumes[0])
	b.snapshot(t, "s-2", volumes[1])
	b.snapshot(t, "s-3", volumes[1])
	count := func(req *csi.ListSnapshotsRequest) int {
		req.Secrets = b.secrets
		resp, err := b.ListSnapshots(t.Context(), req)
		require.NoError(t, err)
		return len(resp.GetEntries())
	}
	assert.Equal(t, 3, count(&csi.ListSnapshotsRequest{}))
	assert.Equal(t, 2, count(&csi.ListSnapshotsRequest{SourceVolumeId: volumes[1].GetVolumeId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SourceVolumeId: "nope"}))
	assert.Equal(t, 1, count(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId(), SourceVolumeId: volumes[1].GetVolumeId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: "t0:" + uuid.NewString()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: volumes[0].GetVolumeId()}), "the id of a volume")
	got, err := b.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
	require.NoError(t, err)
	assert.Equal(t, s.GetCreationTime().AsTime(), got.GetSnapshot().GetCreationTime().AsTime())
	_, err = b.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: volumes[0].GetVolumeId(), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))

	b.targets[0].Crash()
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
}
