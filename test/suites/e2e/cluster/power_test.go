package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// After a shutdown, synced data still exists, and unsynced data is lost. Another process may sync
// all file systems at any time, so only one of several attempts has to show the loss.
func TestShutDownLosesUnsyncedData(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for mounts and loop devices")
	}
	for _, program := range []string{"losetup", "mkfs.ext4", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing", program)
		}
	}
	dir := t.TempDir()
	disk, mounted := filepath.Join(dir, "disk"), filepath.Join(dir, "mounted")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 16<<20))
	require.NoError(t, os.Mkdir(mounted, 0o700))
	run := func(program string, args ...string) string {
		out, err := exec.Command(program, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	device := run("losetup", "--find", "--show", disk)
	defer func() { run("losetup", "--detach", device) }()
	run("mkfs.ext4", "-q", device)

	lost := false
	for range 20 {
		run("mount", device, mounted)
		synced, err := os.Create(filepath.Join(mounted, "synced"))
		require.NoError(t, err)
		_, err = synced.WriteString("data")
		require.NoError(t, err)
		require.NoError(t, synced.Sync())
		require.NoError(t, synced.Close())
		require.NoError(t, os.WriteFile(filepath.Join(mounted, "unsynced"), []byte("data"), 0o600))
		folder, err := os.Open(mounted)
		require.NoError(t, err)
		require.NoError(t, shutDown(folder))
		require.NoError(t, folder.Close())
		require.NoError(t, unix.Unmount(mounted, 0))

		run("mount", device, mounted)
		text, err := os.ReadFile(filepath.Join(mounted, "synced"))
		require.NoError(t, err)
		assert.Equal(t, "data", string(text))
		text, _ = os.ReadFile(filepath.Join(mounted, "unsynced"))
		lost = len(text) == 0
		require.NoError(t, os.RemoveAll(filepath.Join(mounted, "unsynced")))
		require.NoError(t, unix.Unmount(mounted, 0))
		if lost {
			break
		}
	}
	assert.True(t, lost, "unsynced data survived 20 times")
}

// Only file systems on loop devices are shut down. The test uses /proc, which a missing check would
// not harm.
func TestShutDownRefusesOtherFileSystems(t *testing.T) {
	folder, err := os.Open("/proc")
	require.NoError(t, err)
	defer folder.Close()
	require.ErrorContains(t, shutDown(folder), "is not on a loop device")
}

// A volume is mounted twice, for the node and for its pod. On an XFS that has been shut down, even
// fstat fails with EIO. Therefore, each file system must be shut down only once, and it must still
// be possible to power off a node with such a volume.
func TestOpenEachOpensEachFileSystemOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for mounts and loop devices")
	}
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			for _, program := range []string{"losetup", "mkfs." + kind, "mount"} {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is missing", program)
				}
			}
			run := func(program string, args ...string) string {
				out, err := exec.Command(program, args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				return strings.TrimSpace(string(out))
			}
			dir := t.TempDir()
			disk := filepath.Join(dir, "disk")
			require.NoError(t, os.WriteFile(disk, nil, 0o600))
			require.NoError(t, os.Truncate(disk, 512<<20))
			device := run("losetup", "--find", "--show", disk)
			defer func() { run("losetup", "--detach", device) }()
			run("mkfs."+kind, "-q", device)
			var mounts []Mount
			for _, name := range []string{"node", "pod"} {
				path := filepath.Join(dir, name)
				require.NoError(t, os.Mkdir(path, 0o700))
				if out, err := exec.Command("mount", device, path).CombinedOutput(); err != nil {
					t.Skipf("this kernel does not mount %s: %s", kind, out)
				}
				defer func() { require.NoError(t, unix.Unmount(path, 0)) }()
				mounts = append(mounts, Mount{Device: device, Path: path, Kind: kind})
			}
			mounts = append(mounts, Mount{Device: device, Path: filepath.Join(dir, "gone"), Kind: kind}, Mount{Device: "tmpfs", Path: dir, Kind: "tmpfs"}, Mount{Device: device, Path: dir, Kind: "btrfs"})
			files, err := openEach("/", mounts)
			require.NoError(t, err)
			require.Len(t, files, 1)
			require.NoError(t, shutDown(files[0]))
			require.NoError(t, files[0].Close())
			files, err = openEach("/", mounts[:2])
			require.NoError(t, err)
			for _, f := range files { // ext4 can be shut down twice
				require.NoError(t, shutDown(f))
				require.NoError(t, f.Close())
			}
		})
	}
}
