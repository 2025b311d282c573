package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

var (
	errBroken = errors.New("broken")
	block     = drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true)
)

func TestVolumeIsStagedAndUnstaged(t *testing.T) {
	n, f := newFakeNode(t)
	path := filepath.Join(f.staging, volID)
	for _, first := range []bool{true, false} {
		_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
		require.NoError(t, err)
		assert.Equal(t, mount.Stage{Device: "/dev/" + lvolUUID, Path: path, FSType: "xfs", MayFormat: first, MayFinish: first}, f.stage)
	}
	require.Contains(t, f.mounts, path, "the same path as with SPDK's spdk-csi")
	n = f.node() // another process
	for range 2 {
		_, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest())
		require.NoError(t, err)
	}
	assert.Empty(t, f.connected)
	assert.Empty(t, f.mounts)
	entries, err := os.ReadDir(f.staging)
	require.NoError(t, err)
	assert.Empty(t, entries, "kubelet removes the directory only if it is empty")
}

// The class determines the mkfs options, and whether the file system gets the UUID of the volume.
func TestClassDeterminesFilesystemOptions(t *testing.T) {
	n, f := newFakeNode(t)
	req := f.stageRequest(writer)
	req.VolumeContext[request.KeyMkfsOptions], req.VolumeContext[request.KeyFilesystemUUID] = "-m reflink=0", "volume"
	req.PublishContext[request.KeyMkfsOptions] = "-f" // mkfs options are read only from the volume context
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, "-m reflink=0", f.stage.MkfsOptions)
	assert.Equal(t, lvolUUID, f.stage.UUID)
}

func TestStageFormatsOnlyWhenAllowed(t *testing.T) {
	reader := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, false)
	for name, c := range map[string]struct {
		change func(*csi.NodeStageVolumeRequest)
		want   bool
	}{
		"new":             {func(*csi.NodeStageVolumeRequest) {}, true},
		"a copy":          {func(r *csi.NodeStageVolumeRequest) { r.VolumeContext[request.KeyMayFormat] = "false" }, false},
		"was written":     {func(r *csi.NodeStageVolumeRequest) { r.PublishContext[request.KeyMayFormat] = "false" }, false},
		"spdk-csi's, new": {func(r *csi.NodeStageVolumeRequest) { delete(r.VolumeContext, request.KeyMayFormat) }, true},
		"by hand": {func(r *csi.NodeStageVolumeRequest) {
			delete(r.VolumeContext, request.KeyMayFormat)
			delete(r.PublishContext, request.KeyMayFormat)
		}, false},
		"by hand, PV allows": {func(r *csi.NodeStageVolumeRequest) { delete(r.PublishContext, request.KeyMayFormat) }, true},
		"read-only":          {func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = reader }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newFakeNode(t)
			req := f.stageRequest(writer)
			c.change(req)
			_, err := n.NodeStageVolume(t.Context(), req)
			require.NoError(t, err)
			assert.Equal(t, c.want, f.stage.MayFormat)
			began := req.GetVolumeContext()[request.KeyMayFormat] == "true"
			assert.Equal(t, began && !f.stage.ReadOnly, f.stage.MayFinish)
			assert.Equal(t, request.ReadOnly(req.GetVolumeCapability()), f.stage.ReadOnly)
		})
	}
}

// A repeated NodeUnstageVolume continues with the step that failed in the first call.
func TestInterruptedUnstageContinues(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	f.fail["disconnect"] = connect.ErrBusy
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	assert.Empty(t, f.mounts, "unmounted before disconnect failed")
	delete(f.fail, "disconnect")
	_, err = f.node().NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	assert.Empty(t, f.connected, "the second call disconnects")

	// If the process died before it connected the volume, only the record exists.
	require.NoError(t, stageRecord{VolumeID: volID, Export: connect.Export{Transport: connect.TCP, NQN: export.NQN(lvolUUID)}}.write(f.staging))
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	assert.False(t, f.hasRecord())
}

// After SPDK's spdk-csi has been replaced by this driver, a volume that SPDK's spdk-csi staged can
// be published to more pods, and can be unstaged.
func TestLegacyStageCanBeUsedAndUnstaged(t *testing.T) {
	n, f := newFakeNode(t)
	path := filepath.Join(f.staging, legacyRecordName)
	nqn := export.NQN(lvolUUID)
	require.NoError(t, os.WriteFile(path, []byte(`{"targetType":"TCP","targetAddr":"192.0.2.1","targetPort":"4420","nqn":"`+nqn+`","model":"`+lvolUUID+`","fsType":"ext4"}`), 0o600))
	f.connected[nqn] = true
	f.mounts[filepath.Join(f.staging, volID)] = mount.Point{Device: "/dev/nvme0n1"}
	target := filepath.Join(t.TempDir(), "target")
	_, err := n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	require.NoError(t, err)
	assert.Equal(t, "/dev/nvme0n1", f.mounts[target].Device)
	delete(f.mounts, target)
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	assert.Empty(t, f.connected)
	assert.Empty(t, f.mounts)
	assert.NoFileExists(t, path)
}

func TestPublishHandlesExistingPaths(t *testing.T) {
	n, f := newFakeNode(t)
	target, other := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "other")
	_, err := n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "not staged")
	_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	for range 2 {
		_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
		require.NoError(t, err)
	}
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, other))
	require.NoError(t, err, "a second pod on the node")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(block, other))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), "different volume mode", "still")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(block, other+"2"))
	drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err))

	sole := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, false)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(sole, filepath.Join(t.TempDir(), "third")))
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "published elsewhere on this node: at /")
	_, err = n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volID, TargetPath: other})
	require.NoError(t, err)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(sole, target))
	require.NoError(t, err, "the path that was unpublished does not count")

	ro := f.publishRequest(writer, other)
	ro.Readonly = true
	_, err = n.NodePublishVolume(t.Context(), ro)
	require.NoError(t, err)
	assert.True(t, f.mounts[other].ReadOnly)
}

// NodePublishVolume stages a volume again if its device or its mount no longer exists.
func TestPublishRestagesALostDevice(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	target, staged := filepath.Join(t.TempDir(), "target"), filepath.Join(f.staging, volID)
	f.mounts[staged] = mount.Point{Path: staged, Stale: true}
	f.mounts[target] = mount.Point{Path: target, Stale: true}
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	require.NoError(t, err)
	assert.Equal(t, []string{"connect", "mount", "connect", "mount", "unmount", "bind"}, f.log)
	assert.False(t, f.stage.MayFormat, "it was staged before")
	assert.Equal(t, "xfs", f.stage.FSType)
	assert.Equal(t, "/dev/"+lvolUUID, f.mounts[target].Device)

	delete(f.mounts, staged)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	require.NoError(t, err)
	assert.Contains(t, f.mounts, staged)
}

func TestRawBlockVolumeIsPublishedAndUnpublished(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(block))
	require.NoError(t, err)
	assert.Equal(t, []string{"connect"}, f.log, "never formatted")
	target := filepath.Join(t.TempDir(), "target")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(block, target))
	require.NoError(t, err)
	assert.Equal(t, mount.Point{Path: target, Device: "/dev/" + lvolUUID, Block: true}, f.mounts[target])
	clear(f.connected)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(block, target))
	require.NoError(t, err)
	assert.NotEmpty(t, f.connected, "connected again")
	stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volID, VolumePath: target})
	require.NoError(t, err)
	assert.Equal(t, int64(4096), stats.GetUsage()[0].GetTotal())
	_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), "different volume mode", "in use before")
	size, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: volID, VolumePath: target, StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192}})
	require.NoError(t, err)
	assert.Equal(t, int64(4096), size.GetCapacityBytes())
	assert.Contains(t, f.log, "rescan 8192")
	assert.NotContains(t, f.log, "grow")
}

func TestInvalidNodeRequestsAreRefused(t *testing.T) {
	n, f := newFakeNode(t)
	for name, c := range map[string]struct {
		change func(*csi.NodeStageVolumeRequest)
		code   codes.Code
		text   string
	}{
		"no id":            {func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument, "volume_id"},
		"no path":          {func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "" }, codes.InvalidArgument, "staging_target_path"},
		"relative path":    {func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "x" }, codes.InvalidArgument, "absolute"},
		"path traversal":   {func(r *csi.NodeStageVolumeRequest) { r.VolumeId = "../../etc" }, codes.NotFound, "path"},
		"dots":             {func(r *csi.NodeStageVolumeRequest) { r.VolumeId = ".." }, codes.NotFound, "path"},
		"no capability":    {func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument, "volume_capability"},
		"no export":        {func(r *csi.NodeStageVolumeRequest) { r.PublishContext, r.VolumeContext = nil, nil }, codes.InvalidArgument, "attachRequired"},
		"malformed export": {func(r *csi.NodeStageVolumeRequest) { r.PublishContext["nqn"] = "x" }, codes.InvalidArgument, "nqn"},
	} {
		t.Run(name, func(t *testing.T) {
			req := f.stageRequest(writer)
			c.change(req)
			_, err := n.NodeStageVolume(t.Context(), req)
			drivertest.RequireCode(t, c.code, driver.Status(err), c.text)
		})
	}
	harmful := &csi.VolumeCapability{AccessMode: writer.GetAccessMode(), AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: []string{"noatime", "errors=panic"}}}}
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(harmful))
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "mount option")
	assert.Empty(t, f.log)
	_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(harmful, filepath.Join(t.TempDir(), "pod")))
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "mount option")
	other := f.stageRequest(writer)
	other.VolumeId = "t0:ffffffff-3a79-4362-965e-fdb0cd3f4b8d"
	_, err = n.NodeStageVolume(t.Context(), other)
	drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err), volID)
	require.NoError(t, os.WriteFile(filepath.Join(f.staging, recordName), []byte("{"), 0o600))
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.ErrorContains(t, err, "by hand")
	claim := n.locks.Claim()
	require.NoError(t, claim.Take(volID))
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
}

func TestNodeReportsInfoStatsAndHealth(t *testing.T) {
	n, f := newFakeNode(t)
	info, err := n.NodeGetInfo(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, nodeA, info.GetNodeId())
	assert.Equal(t, int64(7), info.GetMaxVolumesPerNode())
	assert.Nil(t, info.GetAccessibleTopology())
	require.NoError(t, n.SetTopology(map[string]string{"zone": "a"}))
	info, err = n.NodeGetInfo(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"zone": "a"}, info.GetAccessibleTopology().GetSegments())
	require.ErrorIs(t, n.SetTopology(map[string]string{"a zone": "a"}), request.ErrInvalid)
	_, err = New("no node", 0, f.state, f, f, nil)
	require.Error(t, err)
	_, err = New(nodeA, -1, f.state, f, f, nil)
	require.Error(t, err)
	_, err = New(nodeA, 0, "", f, f, nil)
	require.Error(t, err)

	path := "/pods/x"
	_, err = n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volID, VolumePath: path})
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	f.mounts[path] = mount.Point{Path: path}
	stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volID, VolumePath: path})
	require.NoError(t, err)
	assert.Equal(t, int64(6), stats.GetUsage()[0].GetAvailable())
	assert.Equal(t, csi.VolumeUsage_INODES, stats.GetUsage()[1].GetUnit())
	f.fail["stats"] = mount.ErrUnreadable
	for _, block := range []bool{false, true} {
		f.mounts[path] = mount.Point{Path: path, Block: block}
		_, err = n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: volID, VolumePath: path})
		drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
	}
	delete(f.fail, "stats")
	f.mounts[path] = mount.Point{Path: path}
	health := func() int {
		resp, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: volID, VolumePublishPath: path})
		require.NoError(t, err)
		return len(resp.GetVolumeHealth().GetHealthStatuses())
	}
	assert.Equal(t, 0, health())
	f.mounts[path] = mount.Point{Path: path, Stale: true}
	assert.Equal(t, 1, health())
	delete(f.mounts, path)
	assert.Equal(t, 0, health())

	staged := &csi.NodeGetVolumeHealthRequest{VolumeId: volID, StagingTargetPath: f.staging}
	f.mounts[stagePath(f.staging, volID)] = mount.Point{Stale: true}
	resp, err := n.NodeGetVolumeHealth(t.Context(), staged)
	require.NoError(t, err)
	assert.Len(t, resp.GetVolumeHealth().GetHealthStatuses(), 1, "staged, but not published")
	f.mounts[path] = mount.Point{Path: path}
	assert.Equal(t, 0, health())
	staged.VolumePublishPath = path
	resp, err = n.NodeGetVolumeHealth(t.Context(), staged)
	require.NoError(t, err)
	assert.Empty(t, resp.GetVolumeHealth().GetHealthStatuses(), "the published path counts")
}
