package mount

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestBindMountIsRepeatable(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, 64)
	staged, target := mountPoint(t, m, "staging"), mountPoint(t, m, "pods/1/mount")
	ro := mountPoint(t, m, "ro")
	require.ErrorIs(t, m.Bind(t.Context(), staged, target, false, nil), ErrNotMounted, "not staged")
	require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: staged, MayFormat: true}))

	flags := []string{"noexec", "discard"}
	require.NoError(t, m.Bind(t.Context(), staged, target, false, flags))
	require.NoError(t, m.Bind(t.Context(), staged, target, false, flags), "repeated")
	p, err := m.At(target)
	require.NoError(t, err)
	assert.Equal(t, d.device, p.Device)
	assert.Contains(t, p.options, "noexec")
	writeFile(t, target, "file", "precious")
	assert.Equal(t, "precious", readFile(t, staged, "file"))

	require.ErrorIs(t, m.Bind(t.Context(), staged, target, true, flags), ErrConflict, "read-only requested, mounted read-write")
	require.ErrorIs(t, m.Bind(t.Context(), staged, target, false, []string{"nosuid"}), ErrConflict)

	require.NoError(t, m.Bind(t.Context(), staged, ro, true, nil))
	require.NoError(t, m.Bind(t.Context(), staged, ro, true, nil))
	require.ErrorIs(t, m.Bind(t.Context(), staged, ro, false, nil), ErrConflict)
	require.ErrorIs(t, os.WriteFile(filepath.Join(ro, "x"), nil, 0o600), unix.EROFS)
	writeFile(t, target, "more", "the other mount is still writable")

	// If another program has mounted a file system at the same path, both mounts are unmounted.
	command(t, "mount", "--bind", staged, target)
	require.NoError(t, m.UnmountAndRemove(t.Context(), target))
	require.NoDirExists(t, target)
	require.NoError(t, m.UnmountAndRemove(t.Context(), ro))

	open, err := os.Open(filepath.Join(staged, "file"))
	require.NoError(t, err)
	require.ErrorIs(t, m.Unmount(t.Context(), staged), ErrBusy)
	require.NoError(t, open.Close())
	require.NoError(t, m.Unmount(t.Context(), staged))
}

func TestReadOnlyStageIsBoundOnlyReadOnly(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, 64)
	staged, target := mountPoint(t, m, "staging"), mountPoint(t, m, "target")
	command(t, "mkfs.ext4", "-q", d.device)
	require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: staged, ReadOnly: true}))
	require.ErrorIs(t, m.Bind(t.Context(), staged, target, false, nil), ErrConflict)
	require.NoError(t, m.Bind(t.Context(), staged, target, true, nil))
	require.NoError(t, m.Bind(t.Context(), staged, target, true, nil))
}

func TestDeviceIsBoundToTheTargetPath(t *testing.T) {
	m, d, other := testMounter(t, Options{}), newDisk(t, 16), newDisk(t, 16)
	target, second := mountPoint(t, m, "pods/1/device"), mountPoint(t, m, "second")
	require.NoError(t, m.BindDevice(t.Context(), d.device, target, false))
	require.NoError(t, m.BindDevice(t.Context(), d.device, target, false), "repeated")
	p, err := m.At(target)
	require.NoError(t, err)
	assert.Equal(t, d.device, p.Device)
	assert.True(t, p.Block)
	assert.Empty(t, p.FSType)
	size, err := m.DeviceSize(t.Context(), target)
	require.NoError(t, err)
	assert.EqualValues(t, 16*mib, size)
	require.NoError(t, os.WriteFile(target, []byte("raw"), 0))
	assert.Equal(t, "raw", string(d.read(0, 3)))

	require.ErrorIs(t, m.BindDevice(t.Context(), other.device, target, false), ErrConflict)
	require.ErrorIs(t, m.BindDevice(t.Context(), d.device, second, true), ErrConflict, "published read-write elsewhere")
	_, err = m.Grow(t.Context(), target)
	require.ErrorIs(t, err, ErrInvalid)

	require.NoError(t, m.UnmountAndRemove(t.Context(), target))
	require.NoFileExists(t, target)
	require.NoError(t, m.UnmountAndRemove(t.Context(), target))

	require.NoError(t, m.BindDevice(t.Context(), d.device, second, true))
	require.NoError(t, m.BindDevice(t.Context(), d.device, second, true))
	require.Error(t, os.WriteFile(second, []byte("no"), 0), "the device is write-protected")
	require.ErrorIs(t, m.BindDevice(t.Context(), d.device, target, false), ErrConflict)
	require.NoError(t, m.UnmountAndRemove(t.Context(), second))
	require.NoError(t, m.BindDevice(t.Context(), d.device, target, false), "no longer published read-only")
	require.NoError(t, os.WriteFile(target, []byte("yes"), 0))

	require.ErrorIs(t, m.BindDevice(t.Context(), d.file, second, false), ErrInvalid)
	require.ErrorIs(t, m.BindDevice(t.Context(), d.device, t.TempDir(), false), ErrConflict, "the path is a directory")
}

// kubelet bind mounts the published path at another path, and makes that mount read-write even if
// the pod requested the volume read-only.
func TestReadWriteMountOfKubeletIsAccepted(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, 16)
	first, second, third := mountPoint(t, m, "first"), mountPoint(t, m, "second"), mountPoint(t, m, "third")
	kubelets := filepath.Join(t.TempDir(), "kubelets")
	require.NoError(t, m.BindDevice(t.Context(), d.device, first, true))
	writeFile(t, filepath.Dir(kubelets), "kubelets", "")
	require.NoError(t, unix.Mount(first, kubelets, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(kubelets, 0) })
	require.NoError(t, unix.Mount("", kubelets, "", unix.MS_BIND|unix.MS_REMOUNT, ""))

	require.NoError(t, m.BindDevice(t.Context(), d.device, second, true), "for a second pod")
	require.ErrorIs(t, m.BindDevice(t.Context(), d.device, third, false), ErrConflict)
	require.Error(t, os.WriteFile(kubelets, []byte("no"), 0), "the device is write-protected")
	require.NoError(t, unix.Unmount(kubelets, 0))
	require.NoError(t, m.UnmountAndRemove(t.Context(), first))
	require.Error(t, os.WriteFile(second, []byte("no"), 0), "the device is write-protected for the second pod")
	require.NoError(t, m.UnmountAndRemove(t.Context(), second))
	require.NoError(t, m.BindDevice(t.Context(), d.device, third, false))
}

func TestUnmountAndRemoveKeepsData(t *testing.T) {
	m, dir := testMounter(t, Options{}), t.TempDir()
	folder := filepath.Join(dir, "directory")
	require.NoError(t, os.Mkdir(folder, 0o700))
	writeFile(t, folder, "file", "precious")
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), folder), ErrNotEmpty)
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), filepath.Join(folder, "file")), ErrNotEmpty)
	assert.Equal(t, "precious", readFile(t, folder, "file"))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(folder, link))
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), link), ErrNotEmpty)
	require.NoError(t, m.UnmountAndRemove(t.Context(), filepath.Join(dir, "missing", "path")))
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), "relative"), ErrInvalid)
}

func TestStatsDescribeTheMountedFilesystem(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, 64)
	path := mountPoint(t, m, "staging")
	_, err := m.Stats(t.Context(), path)
	require.ErrorIs(t, err, ErrNotMounted)
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = m.Stats(t.Context(), path)
	require.ErrorIs(t, err, ErrNotMounted, "not the statistics of the parent file system")
	require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, MayFormat: true}))
	before, err := m.Stats(t.Context(), path)
	require.NoError(t, err)
	writeFile(t, path, "file", string(make([]byte, mib)))
	unix.Sync()
	after, err := m.Stats(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, before.TotalBytes, after.TotalBytes)
	assert.EqualValues(t, mib, after.UsedBytes-before.UsedBytes)
	assert.EqualValues(t, mib, before.AvailableBytes-after.AvailableBytes)
	assert.EqualValues(t, 1, after.UsedInodes-before.UsedInodes)
	assert.Equal(t, after.TotalInodes, after.UsedInodes+after.FreeInodes)
}
