package node

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// A realNode makes real mounts. Its only export is a loop device, which is always connected.
type realNode struct {
	*Node
	t        *testing.T
	requests *fakeNode
	mounter  *mount.Mounter
	file     string
	device   string
	pods     string
}

const realMiB = 320 // mkfs.xfs needs at least 300 MiB

func newRealNode(t *testing.T) *realNode {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for loop devices and mounts: run as root, or sudo -E make test")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: modprobe loop, and give the container /dev (%v)", err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &realNode{t: t, mounter: mount.New(mount.Options{Log: log}), file: filepath.Join(t.TempDir(), "disk"), pods: t.TempDir()}
	_, r.requests = newFakeNode(t)
	require.NoError(t, os.WriteFile(r.file, nil, 0o600))
	require.NoError(t, os.Truncate(r.file, realMiB<<20))
	r.device = r.command("losetup", "--find", "--show", r.file)
	t.Cleanup(func() { r.command("losetup", "--detach", r.device) })
	var err error
	r.Node, err = New(nodeA, 0, t.TempDir(), r, r.mounter, log)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, path := range []string{r.pod("1"), r.pod("2"), r.staged()} {
			require.NoError(t, r.mounter.Unmount(context.Background(), path))
		}
	})
	return r
}

func (r *realNode) command(name string, args ...string) string {
	r.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(r.t, err, "%s %v: %s", name, args, out)
	return strings.TrimSpace(string(out))
}

func (r *realNode) Connect(context.Context, connect.Export) (connect.Device, error) {
	return connect.Device{Path: r.device}, nil
}
func (r *realNode) Find(context.Context, connect.Export) (connect.Device, error) {
	return connect.Device{Path: r.device}, nil
}
func (r *realNode) Disconnect(context.Context, connect.Export) error { return nil }
func (r *realNode) Rescan(_ context.Context, _ connect.Export, want int64) (int64, error) {
	return want, nil
}

func (r *realNode) staged() string         { return filepath.Join(r.requests.staging, volID) }
func (r *realNode) pod(name string) string { return filepath.Join(r.pods, name) }

func (r *realNode) stageAs(fsType string, flags ...string) *csi.VolumeCapability {
	r.t.Helper()
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
	_, err := r.NodeStageVolume(r.t.Context(), r.requests.stageRequest(c))
	require.NoError(r.t, err)
	return c
}

func (r *realNode) publish(c *csi.VolumeCapability, name string) error {
	_, err := r.NodePublishVolume(r.t.Context(), r.requests.publishRequest(c, r.pod(name)))
	return err
}

func (r *realNode) unpublish(name string) {
	r.t.Helper()
	_, err := r.NodeUnpublishVolume(r.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volID, TargetPath: r.pod(name)})
	require.NoError(r.t, err)
}

// mountID returns the kernel's id of the mount at a path. A new mount at the path has a different
// id.
func (r *realNode) mountID(path string) string {
	r.t.Helper()
	infos, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(r.t, err)
	for line := range strings.Lines(string(infos)) {
		if fields := strings.Fields(line); fields[4] == path {
			return fields[0]
		}
	}
	require.Fail(r.t, "not mounted", path)
	return ""
}

// shutdown shuts down the file system as if its device had failed.
func (r *realNode) shutdown() {
	r.t.Helper()
	const goingDown = 2<<30 | 4<<16 | 'X'<<8 | 125 // XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN
	logFlush := uint32(1)
	dir, err := os.Open(r.staged())
	require.NoError(r.t, err)
	defer dir.Close()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&logFlush)))
	require.Zero(r.t, errno)
}

// remountReadOnly makes ext4 report an error, after which the file system is read-only.
func (r *realNode) remountReadOnly() {
	r.t.Helper()
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(r.device), "trigger_fs_error")
	require.NoError(r.t, os.WriteFile(trigger, []byte("1"), 0o200))
}

// NodePublishVolume repairs a file system that has been shut down. Kubernetes stages a volume only
// once for all pods on a node, so a replacement pod might otherwise receive a broken file system.
func TestPublishRepairsShutDownFilesystem(t *testing.T) {
	for name, c := range map[string]struct {
		fsType string
		flags  []string
		kill   func(*realNode)
	}{
		"ext4 shutdown":     {"ext4", nil, (*realNode).shutdown},
		"ext4 emergency_ro": {"ext4", []string{"errors=remount-ro"}, (*realNode).remountReadOnly},
		"xfs shutdown":      {"xfs", nil, (*realNode).shutdown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRealNode(t)
			capability := r.stageAs(c.fsType, c.flags...)
			require.NoError(t, r.publish(capability, "1"))
			require.NoError(t, os.WriteFile(filepath.Join(r.pod("1"), "file"), []byte("precious"), 0o600))
			unix.Sync()
			c.kill(r)

			// While another pod is using the broken file system, the file system cannot be mounted
			// again and must not be published.
			was := r.mountID(r.staged())
			err := r.publish(capability, "2")
			drivertest.RequireCode(t, codes.Aborted, driver.Status(err), r.pod("1"))
			assert.NoDirExists(t, r.pod("2"))
			assert.Equal(t, was, r.mountID(r.staged()), "the mount is unchanged")

			r.unpublish("1")
			require.NoError(t, r.publish(capability, "2"))
			text, err := os.ReadFile(filepath.Join(r.pod("2"), "file"))
			require.NoError(t, err)
			assert.Equal(t, "precious", string(text))
			require.NoError(t, os.WriteFile(filepath.Join(r.pod("2"), "new"), []byte("x"), 0o600))
		})
	}
}

func TestPublishKeepsHealthyMount(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		r := newRealNode(t)
		c := r.stageAs(fsType)
		was := r.mountID(r.staged())
		require.NoError(t, r.publish(c, "1"))
		require.NoError(t, r.publish(c, "2"))
		require.NoError(t, r.publish(c, "1"))
		assert.Equal(t, was, r.mountID(r.staged()))
	}
}

// A device that returns errors may recover. Until then, the volume is neither bound to a path nor
// unmounted.
func TestPublishWaitsForFailingDevice(t *testing.T) {
	r := newRealNode(t)
	c := r.stageAs("ext4")
	unix.Sync()
	kept := filepath.Join(t.TempDir(), "kept")
	r.command("cp", "--sparse=always", r.file, kept)
	was := r.mountID(r.staged())
	require.NoError(t, os.Truncate(r.file, 0))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(r.publish(c, "1")), r.device, "check whether the target is running")
	assert.NoDirExists(t, r.pod("1"))
	r.command("dd", "if="+kept, "of="+r.file, "bs=1M", "conv=notrunc,sparse", "status=none")
	require.NoError(t, os.Truncate(r.file, realMiB<<20))
	require.NoError(t, r.publish(c, "1"))
	assert.Equal(t, was, r.mountID(r.staged()))
}

// If several calls publish a volume concurrently, one call repairs the file system, and the others
// return a retryable error.
func TestConcurrentPublishRepairsOnce(t *testing.T) {
	r := newRealNode(t)
	c := r.stageAs("xfs")
	require.NoError(t, os.WriteFile(filepath.Join(r.staged(), "file"), []byte("precious"), 0o600))
	unix.Sync()
	r.shutdown()
	var wg sync.WaitGroup
	for _, pod := range []string{"1", "2", "1", "2"} {
		wg.Go(func() {
			_, err := drivertest.Retry(driver.Code, func() (struct{}, error) { return struct{}{}, r.publish(c, pod) })
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	for _, pod := range []string{"1", "2"} {
		text, err := os.ReadFile(filepath.Join(r.pod(pod), "file"))
		require.NoError(t, err)
		assert.Equal(t, "precious", string(text))
	}
}
