package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/driver/mount"
)

func stagedIDs(t *testing.T, n *Node) (ids []string) {
	all, err := n.Volumes().Staged()
	require.NoError(t, err)
	for _, v := range all {
		ids = append(ids, v.ID)
	}
	return ids
}

// A volume is monitored from the end of its staging to the beginning of its unstaging, by any
// process on the node.
func TestStagedVolumesAreMonitored(t *testing.T) {
	n, f := newFakeNode(t)
	assert.Empty(t, stagedIDs(t, n))
	f.fail["mount"] = mount.ErrHoldsData
	require.Error(t, stageCall(n, f, writer, ""))
	assert.Empty(t, stagedIDs(t, n), "not staged")
	clear(f.fail)
	for range 2 {
		require.NoError(t, stageCall(n, f, writer, ""))
	}
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, publishCall(n, f, writer, target))
	all, err := f.node().Volumes().Staged()
	require.NoError(t, err)
	want := monitor.Volume{ID: volID, Target: "t0", UUID: lvolUUID, Path: stagePath(f.staging, volID), Targets: []string{target}}
	require.Len(t, all, 1)
	assert.Equal(t, export.NQN(lvolUUID), all[0].Export.NQN)
	want.Export = all[0].Export
	assert.Equal(t, want, all[0])

	f.fail["disconnect"] = connect.ErrBusy
	require.Error(t, unstageCall(n, f, writer, ""))
	assert.True(t, f.hasRecord())
	assert.Empty(t, stagedIDs(t, n), "it is kubelet's to finish")
	clear(f.fail)
	require.NoError(t, unstageCall(n, f, writer, ""))

	require.NoError(t, stageCall(n, f, block, ""))
	all, err = n.Volumes().Staged()
	require.NoError(t, err)
	assert.Empty(t, all[0].Path, "a raw block volume has no file system")
	require.NoError(t, os.WriteFile(filepath.Join(f.staging, recordName), []byte(`{"version":7}`), 0o600))
	all, err = n.Volumes().Staged()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.ErrorIs(t, all[0].Err, errNewerRecord)
	require.NoError(t, os.Remove(filepath.Join(f.staging, recordName)))
	assert.Empty(t, stagedIDs(t, n), "without a record, it is not staged")
}

// The monitor does not check a volume while a call is working on it. Calls fail while the monitor
// holds the volume.
func TestCallAndMonitorExcludeEachOther(t *testing.T) {
	n, f := newFakeNode(t)
	source := n.Volumes()
	_, _, ok := source.Hold(volID)
	assert.False(t, ok, "not staged")
	require.NoError(t, stageCall(n, f, writer, ""))
	assert.False(t, source.Busy(volID))
	v, release, ok := source.Hold(volID)
	require.True(t, ok)
	assert.Equal(t, volID, v.ID)
	assert.True(t, source.Busy(volID))
	_, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), "another call")
	_, _, ok = source.Hold(volID)
	assert.False(t, ok)
	release()
	assert.False(t, source.Busy(volID))
	require.NoError(t, os.WriteFile(filepath.Join(f.staging, recordName), []byte(`{"version":7}`), 0o600))
	_, _, ok = source.Hold(volID)
	assert.False(t, ok, "it is unknown what is to be connected")
	assert.Empty(t, n.locks.Held())
}

// A process adopts the volumes that an earlier release has staged since the last boot.
func TestVolumesStagedByEarlierReleasesAreAdopted(t *testing.T) {
	n, f := newFakeNode(t)
	require.NoError(t, stageCall(n, f, writer, ""))
	require.NoError(t, os.RemoveAll(n.staged.dir))
	assert.Empty(t, stagedIDs(t, n))
	other := filepath.Join(t.TempDir(), "mount")
	require.NoError(t, n.Volumes().Adopt([]string{"/", "/proc", other, stagePath(f.staging, volID)}))
	assert.Equal(t, []string{volID}, stagedIDs(t, n))

	n.staged.boot = "the-next"
	assert.Empty(t, stagedIDs(t, n), "nothing is connected after a boot")
	require.NoError(t, n.Volumes().Adopt(nil))
	entries, err := os.ReadDir(n.staged.dir)
	require.NoError(t, err)
	assert.Empty(t, entries, "records from before the boot are removed")

	require.NoError(t, os.RemoveAll(n.staged.dir))
	require.NoError(t, os.WriteFile(n.staged.dir, nil, 0o600))
	require.Error(t, n.Volumes().Adopt(nil))
	_, err = n.Volumes().Staged()
	require.ErrorContains(t, err, "list the volumes")
	require.NoError(t, stageCall(n, f, writer, ""), "a volume that cannot be monitored is staged nevertheless")
	assert.NotEmpty(t, bootID())
}

// A fakeKernel reports the state that a test has set.
type fakeKernel struct {
	*mount.Mounter
	table string // path of the mount table
	paths connect.Paths
}

func (k *fakeKernel) Paths(context.Context, connect.Export) (connect.Paths, error) {
	return k.paths, nil
}
func (k *fakeKernel) Reconnect(context.Context, connect.Export) error { return connect.ErrUnreachable }

func watched(t *testing.T, n *Node, f *fakeNode) (*monitor.Monitor, *fakeKernel) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	require.NoError(t, os.WriteFile(table, []byte("36 35 0:77 / "+stagePath(f.staging, volID)+" rw shared:1 - ext4 /dev/x ro\n"), 0o600))
	require.NoError(t, os.MkdirAll(stagePath(f.staging, volID), 0o700))
	k := &fakeKernel{Mounter: mount.New(mount.Options{MountInfo: table}), table: table, paths: connect.Paths{Expected: 2, All: []connect.Path{{Name: "nvme0", State: "live", Live: true}, {Name: "nvme1", State: "live", Live: true}}}}
	m := monitor.New(monitor.Options{Source: n.Volumes(), Connector: k, Mounter: k, Log: n.log, Interval: time.Hour})
	n.SetMonitor(m)
	return m, k
}

func TestVolumeHealthReportsMonitorFindings(t *testing.T) {
	n, f := newFakeNode(t)
	capabilities := func() (types []csi.NodeServiceCapability_RPC_Type) {
		resp, err := n.NodeGetCapabilities(t.Context(), nil)
		require.NoError(t, err)
		for _, c := range resp.GetCapabilities() {
			types = append(types, c.GetRpc().GetType())
		}
		return types
	}
	assert.NotContains(t, capabilities(), csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	_, err := n.NodeGetStorageHealth(t.Context(), nil)
	drivertest.RequireCode(t, codes.Unimplemented, driver.Status(err))

	require.NoError(t, stageCall(n, f, writer, ""))
	m, k := watched(t, n, f)
	assert.Contains(t, capabilities(), csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	health := func() map[string]csi.VolumeHealthErrorType {
		m.Check(t.Context())
		resp, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volID, StagingTargetPath: f.staging})
		require.NoError(t, err)
		found := map[string]csi.VolumeHealthErrorType{}
		for _, h := range resp.GetVolumeHealth().GetHealthStatuses() {
			assert.NotEmpty(t, h.GetMessage())
			found[h.GetReason()] = h.GetStatus()
		}
		assert.Len(t, found, len(resp.GetVolumeHealth().GetHealthStatuses()), "one entry for each reason")
		return found
	}
	storage := func() []*csi.NodeGetStorageHealthResponse_StorageBackendHealth {
		resp, err := n.NodeGetStorageHealth(t.Context(), nil)
		require.NoError(t, err)
		return resp.GetBackendHealth()
	}
	const degraded, inaccessible = csi.VolumeHealthErrorType_DEGRADED, csi.VolumeHealthErrorType_INACCESSIBLE
	assert.Equal(t, map[string]csi.VolumeHealthErrorType{"FilesystemReadOnly": degraded}, health())
	assert.Empty(t, storage(), "the target is well")

	k.paths.All = k.paths.All[:1]
	assert.Equal(t, map[string]csi.VolumeHealthErrorType{"FilesystemReadOnly": degraded, "PathsLost": degraded}, health())
	require.Len(t, storage(), 1)
	assert.Equal(t, csi.StorageHealthErrorType_STORAGE_DEGRADED, storage()[0].GetStatus())
	assert.Contains(t, storage()[0].GetMessage(), "t0 (1 of 1 volumes)")

	k.paths.All[0].Live = false
	assert.Equal(t, map[string]csi.VolumeHealthErrorType{"FilesystemReadOnly": degraded, "TargetUnreachable": inaccessible}, health())
	require.Len(t, storage(), 1)
	assert.Equal(t, csi.StorageHealthErrorType_STORAGE_UNREACHABLE, storage()[0].GetStatus())
	assert.Contains(t, storage()[0].GetMessage(), "t0 (1 volumes)")

	k.paths.All = nil
	f.mounts[stagePath(f.staging, volID)] = mount.Point{Stale: true}
	assert.Equal(t, map[string]csi.VolumeHealthErrorType{"FilesystemReadOnly": degraded, "NotConnected": inaccessible, "DeviceGone": inaccessible}, health())

	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, publishCall(n, f, writer, target))
	resp, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volID, StagingTargetPath: f.staging})
	require.NoError(t, err)
	assert.Empty(t, resp.GetVolumeHealth().GetHealthStatuses(), "what was found before the call no longer counts")

	// The health of a published path includes findings about that path and about the volume as a
	// whole, but not about the dead mount of another pod.
	of := func(dead ...string) (reasons []string) {
		k.paths.All = []connect.Path{{Name: "nvme0", State: "live", Live: true}, {Name: "nvme1", State: "live", Live: true}}
		lines := "36 35 0:77 / " + stagePath(f.staging, volID) + " rw shared:1 - ext4 /dev/x rw\n"
		for _, path := range dead {
			lines += "37 35 259:1048000 / " + path + " rw shared:1 - ext4 /dev/x rw\n"
		}
		require.NoError(t, os.WriteFile(k.table, []byte(lines), 0o600))
		m.Check(t.Context())
		resp, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volID, VolumePublishPath: target, StagingTargetPath: f.staging})
		require.NoError(t, err)
		for _, h := range resp.GetVolumeHealth().GetHealthStatuses() {
			reasons = append(reasons, h.GetReason())
		}
		return reasons
	}
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, publishCall(n, f, writer, other))
	assert.Empty(t, of())
	assert.Equal(t, []string{reasonDeviceGone}, of(target))
	assert.Empty(t, of(other))

	for kind := range entries {
		assert.Contains(t, monitor.Kinds, kind)
	}
	assert.Len(t, entries, len(monitor.Kinds)-2, "all but OK and Unknown")
}
