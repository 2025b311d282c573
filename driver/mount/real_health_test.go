package mount

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// filesystemFailures lists ways in which a mounted file system is shut down while its device
// remains.
var filesystemFailures = []struct {
	name, fsType string
	flags        []string
	inject       func(t *testing.T, d *disk, path string)
}{
	{"ext4 shutdown", ext4, nil, func(t *testing.T, _ *disk, path string) { shutdown(t, path, true) }},
	{"ext4 shutdown, journal lost", ext4, nil, func(t *testing.T, _ *disk, path string) { shutdown(t, path, false) }},
	{"ext4 emergency_ro", ext4, []string{"errors=remount-ro"}, func(t *testing.T, d *disk, _ string) {
		trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
		require.NoError(t, os.WriteFile(trigger, []byte("1"), 0o200))
	}},
	{"xfs shutdown", xfs, nil, func(t *testing.T, _ *disk, path string) { shutdown(t, path, true) }},
	{"xfs shutdown, log lost", xfs, nil, func(t *testing.T, _ *disk, path string) { shutdown(t, path, false) }},
}

// shutdown makes a file system fail as if its device were lost. If flush is true, the file system
// first writes its log.
func shutdown(t *testing.T, path string, flush bool) {
	t.Helper()
	const goingDown = 2<<30 | 4<<16 | 'X'<<8 | 125 // XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN
	flags := uint32(2)
	if flush {
		flags = 1
	}
	dir, err := os.Open(path)
	require.NoError(t, err)
	defer dir.Close()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&flags)))
	require.Zero(t, errno)
}

func TestShutDownFilesystemIsReplaced(t *testing.T) {
	for _, failure := range filesystemFailures {
		t.Run(failure.name, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path, pod := mountPoint(t, m, "staging"), mountPoint(t, m, "pod")
			s := Stage{Device: d.device, Path: path, FSType: failure.fsType, Flags: failure.flags, MayFormat: true}
			require.ErrorIs(t, m.Check(t.Context(), path), ErrNotMounted)
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			require.NoError(t, m.Bind(t.Context(), path, pod, false, nil))
			writeFile(t, path, "file", "precious")
			unix.Sync()
			require.NoError(t, m.Check(t.Context(), path))
			failure.inject(t, d, path)
			require.Error(t, os.WriteFile(filepath.Join(path, "new"), []byte("x"), 0o600))
			require.ErrorIs(t, m.Check(t.Context(), path), ErrBroken)

			// While a pod is using the file system, its device remains in use, so the file system
			// can be neither checked nor mounted again.
			s.MayFormat = false
			before, err := m.points()
			require.NoError(t, err)
			err = m.FormatAndMount(t.Context(), s)
			require.ErrorIs(t, err, ErrBusy)
			require.ErrorContains(t, err, pod)
			after, err := m.points()
			require.NoError(t, err)
			require.Equal(t, before, after, "the mounts are unchanged")

			require.NoError(t, m.Unmount(t.Context(), pod))
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			require.NoError(t, m.Check(t.Context(), path))
			assert.Equal(t, "precious", readFile(t, path, "file"))
			writeFile(t, path, "new", "x")
			require.NoError(t, m.UnmountAndRemove(t.Context(), path))
		})
	}
}

// If a device returns errors, its file system may still be intact, so it remains mounted until the
// device recovers.
func TestFailingDeviceKeepsTheMount(t *testing.T) {
	for _, fsType := range []string{ext4, xfs} {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			s := Stage{Device: d.device, Path: path, FSType: fsType, MayFormat: true}
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			writeFile(t, path, "file", "precious")
			unix.Sync()
			kept := filepath.Join(t.TempDir(), "kept")
			command(t, "cp", "--sparse=always", d.file, kept)
			require.NoError(t, os.Truncate(d.file, 0))
			require.ErrorIs(t, m.Check(t.Context(), path), ErrUnreadable)
			require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrUnreadable)
			p, err := m.At(path)
			require.NoError(t, err)
			require.Equal(t, d.device, p.Device, "still mounted")
			command(t, "dd", "if="+kept, "of="+d.file, "bs=1M", "conv=notrunc,sparse", "status=none")
			require.NoError(t, os.Truncate(d.file, fsMiB*mib))
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			require.NoError(t, m.Check(t.Context(), path))
			assert.Equal(t, "precious", readFile(t, path, "file"))
		})
	}
}

// A volume that was mounted read-only is not mistaken for a volume that the kernel has made
// read-only after errors.
func TestReadOnlyMountIsNotReportedAsBroken(t *testing.T) {
	for _, fsType := range []string{ext4, xfs} {
		m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
		path := mountPoint(t, m, "staging")
		command(t, "mkfs."+fsType, "-q", d.device)
		require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, ReadOnly: true}))
		require.NoError(t, m.Check(t.Context(), path))
	}
}

// Devices can be read with any sector size. SPDK's lvols have sectors of 512 or 4096 bytes.
func TestDevicesOfAnySectorSizeAreRead(t *testing.T) {
	for _, bytes := range []string{"512", "1024", "2048", "4096"} {
		d := newDisk(t, 8)
		command(t, "losetup", "--sector-size", bytes, d.device)
		require.Equal(t, bytes, command(t, "blockdev", "--getss", d.device))
		require.NoError(t, readDirectly(d.device), "sectors of %s bytes", bytes)
	}
}
