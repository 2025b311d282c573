package mount

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests in files named real_* use loop devices with real file systems and mounts.

// testMounter returns a Mounter that logs to the test.
func testMounter(t *testing.T, o Options) *Mounter {
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	return New(o)
}

// disk is a sparse file on a loop device.
type disk struct {
	t      *testing.T
	file   string
	device string
}

const mib = 1 << 20

// fileSystems lists every type that can be created.
var fileSystems = []string{ext4, xfs, btrfs}

// fsMiB is large enough for every type of file system. mkfs.xfs needs 300 MiB.
const fsMiB = 320

func newDisk(t *testing.T, sizeMiB int64) *disk {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Truncate(file, sizeMiB*mib))
	return diskOn(t, file)
}

func diskOn(t *testing.T, file string) *disk {
	t.Helper()
	needRoot(t)
	d := &disk{t: t, file: file}
	d.device = command(t, "losetup", "--find", "--show", file)
	t.Cleanup(func() {
		command(t, "blockdev", "--setrw", d.device) // otherwise the loop device would remain write-protected
		command(t, "losetup", "--detach", d.device)
	})
	return d
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for loop devices and mounts: run as root, or sudo -E make test")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: modprobe loop, and give the container /dev (%v)", err)
	}
	for tool, pkg := range map[string]string{
		"losetup": "util-linux", "blkid": "util-linux", "mkfs.ext4": "e2fsprogs", "resize2fs": "e2fsprogs", "e2fsck": "e2fsprogs",
		"mkfs.btrfs": "btrfs-progs", "btrfs": "btrfs-progs", "btrfstune": "btrfs-progs", "xfs_db": "xfsprogs",
		"mkfs.xfs": "xfsprogs", "xfs_growfs": "xfsprogs",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("needs %s: apt-get install %s", tool, pkg)
		}
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return strings.TrimSpace(string(out))
}

func (d *disk) resize(sizeMiB int64) {
	d.t.Helper()
	d.resizeBytes(sizeMiB * mib)
}

func (d *disk) resizeBytes(size int64) {
	d.t.Helper()
	require.NoError(d.t, os.Truncate(d.file, size))
	command(d.t, "losetup", "--set-capacity", d.device)
}

func (d *disk) write(offset int64, data string) {
	d.t.Helper()
	f, err := os.OpenFile(d.device, os.O_WRONLY, 0)
	require.NoError(d.t, err)
	_, err = f.WriteAt([]byte(data), offset)
	require.NoError(d.t, err)
	require.NoError(d.t, f.Sync())
	require.NoError(d.t, f.Close())
}

func (d *disk) read(offset int64, n int) []byte {
	d.t.Helper()
	f, err := os.Open(d.device)
	require.NoError(d.t, err)
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, offset)
	require.NoError(d.t, err)
	return b
}

// mountPoint returns a path. At the end of the test, everything mounted at this path is unmounted.
func mountPoint(t *testing.T, m *Mounter, name string) string {
	path := filepath.Join(t.TempDir(), name)
	t.Cleanup(func() { require.NoError(t, m.Unmount(context.Background(), path)) })
	return path
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(b)
}
