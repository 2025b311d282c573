package mount

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A mount that is in use is detached only if its device has provably been removed.
func TestOnlyMountsOfRemovedDevicesAreDetached(t *testing.T) {
	stage := func(number string) string { return line(number, "/", "/stage", "rw", "ext4", "/dev/nvme1n1", "rw") }
	for name, c := range map[string]struct {
		lines  []string
		spoil  func(t *testing.T, m *Mounter)
		detach bool
	}{
		"removed":                 {[]string{stage("259:9")}, nil, true},
		"removed, mounted twice":  {[]string{stage("259:9"), stage("259:9")}, nil, true},
		"there":                   {[]string{stage("259:1")}, nil, false},
		"removed below, there on": {[]string{stage("259:9"), stage("259:1")}, nil, false},
		"no device":               {[]string{line("0:9", "/", "/stage", "rw", "tmpfs", "none", "rw")}, nil, false},
		"no sysfs": {[]string{stage("259:9")}, func(t *testing.T, m *Mounter) {
			require.NoError(t, os.RemoveAll(m.sysBlock))
		}, false},
		"empty sysfs": {[]string{stage("259:9")}, func(t *testing.T, m *Mounter) {
			require.NoError(t, os.Remove(filepath.Join(m.sysBlock, "259:1")))
		}, false},
		"mount table unreadable": {[]string{stage("259:9")}, func(_ *testing.T, m *Mounter) {
			umount := m.umount
			m.umount = func(path string) error { m.mountInfo = "/missing/mountinfo"; return umount(path) }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, table := fakeMounts(t, c.lines...)
			var logged bytes.Buffer
			m.log = slog.New(slog.NewTextHandler(&logged, nil))
			table.busy = true
			if c.spoil != nil {
				c.spoil(t, m)
			}
			err := m.Unmount(t.Context(), "/stage")
			if !c.detach {
				require.Error(t, err)
				assert.Empty(t, table.detached)
				assert.NotContains(t, logged.String(), "detaching")
				return
			}
			require.NoError(t, err)
			assert.Len(t, table.detached, len(c.lines))
			_, err = m.At("/stage")
			require.ErrorIs(t, err, ErrNotMounted)
			for _, fact := range []string{"path=/stage", "device_number=259:9", "259:9 does not exist, while", "lists 1 other devices"} {
				assert.Contains(t, logged.String(), fact, "the log has the proof")
			}
		})
	}
}

// Without the mount table, detachGone cannot prove that the device was removed, so it must not
// report that the mount is detached.
func TestUnreadableMountTableIsNotADetachedMount(t *testing.T) {
	m, table := fakeMounts(t, line("259:9", "/", "/stage", "rw", "ext4", "/dev/nvme1n1", "rw"))
	m.mountInfo = filepath.Join(t.TempDir(), "missing")
	err := m.detachGone("/stage")
	require.ErrorContains(t, err, "list mounts")
	require.NotErrorIs(t, err, ErrNotMounted)
	assert.Empty(t, table.detached)
	m.mountInfo = table.file
	require.NoError(t, m.detachGone("/stage"))
	assert.Equal(t, []string{"/stage"}, table.detached)
}

// On a real kernel, unmounting a mount in use returns EBUSY. A detached mount disappears from the
// mount table immediately, and is released when its last user closes its files.
func TestDetachedMountDisappearsFromTheTable(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
	path := mountPoint(t, m, "staging")
	require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, FSType: ext4, MayFormat: true}))
	writeFile(t, path, "file", "in use")
	used, err := os.Open(filepath.Join(path, "file"))
	require.NoError(t, err)
	err = m.Unmount(t.Context(), path)
	require.ErrorIs(t, err, ErrBusy, "its device is there")
	require.ErrorContains(t, err, "end the processes")

	// Simulate the removal of the device, but only in this process's view of sysfs.
	sysBlock := t.TempDir()
	require.NoError(t, os.Symlink("x/nvme9n1", filepath.Join(sysBlock, "259:0")))
	m.sysBlock = sysBlock
	require.NoError(t, m.UnmountAndRemove(t.Context(), path))
	assert.NoDirExists(t, path)
	m.sysBlock = "/sys/dev/block"
	require.NoError(t, used.Close())
	_, err = m.At(path)
	require.ErrorIs(t, err, ErrNotMounted)
}

func TestTableListsMounts(t *testing.T) {
	m, _ := fakeMounts(t,
		line("259:1", "/", "/stage", "rw,noatime", "xfs", "/dev/nvme0n1", "rw,nouuid"),
		line("259:9", "/", "/stale", "rw", "ext4", "/dev/nvme1n1", "rw"),
		line("259:1", "/", "/shutdown", "rw", "ext4", "/dev/nvme0n1", "rw,shutdown"),
		line("259:1", "/", "/emergency", "rw", "ext4", "/dev/nvme0n1", "rw,emergency_ro"),
		line("259:1", "/", "/errors", "rw", "ext4", "/dev/nvme0n1", "ro"),
		line("259:1", "/", "/asked", "ro", "ext4", "/dev/nvme0n1", "ro"),
	)
	table, err := m.Table(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "/stage /stale /shutdown /emergency /errors /asked", strings.Join(table.Paths(), " "))
	for path, want := range map[string]Fault{
		"/stage": NoFault, "/stale": DeviceGone, "/shutdown": ShutDown, "/emergency": ReadOnlyAfterError, "/errors": ReadOnlyAfterError, "/asked": NoFault,
	} {
		p, err := table.At(path)
		require.NoError(t, err, path)
		assert.Equal(t, want, p.Fault(), path)
		if want != NoFault {
			require.ErrorIs(t, m.Probe(t.Context(), p), ErrBroken, path)
		}
	}
	_, err = table.At("/missing")
	require.ErrorIs(t, err, ErrNotMounted)
	_, err = table.At("relative")
	require.ErrorIs(t, err, ErrInvalid)
	require.NoError(t, m.Unmount(t.Context(), "/stage"))
	_, err = table.At("/stage")
	require.NoError(t, err, "the table is that of its moment")
	m.mountInfo = "/missing/mountinfo"
	_, err = m.Table(t.Context())
	require.ErrorContains(t, err, "list mounts")
}

func TestFailedFilesystemsAreDetected(t *testing.T) {
	for _, failure := range filesystemFailures {
		t.Run(failure.name, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, FSType: failure.fsType, Flags: failure.flags, MayFormat: true}))
			probe := func() error {
				table, err := m.Table(t.Context())
				require.NoError(t, err)
				p, err := table.At(path)
				require.NoError(t, err)
				return m.Probe(t.Context(), p)
			}
			require.NoError(t, probe())
			unix.Sync()
			failure.inject(t, d, path)
			err := probe()
			if err == nil && failure.fsType == ext4 && strings.Contains(failure.name, "shutdown") {
				t.Skip("this kernel shows a shutdown of ext4 only to writers")
			}
			require.ErrorIs(t, err, ErrBroken)
		})
	}
	p := Point{Path: filepath.Join(t.TempDir(), "missing")}
	require.ErrorIs(t, New(Options{}).Probe(t.Context(), p), ErrBroken)
	p.Block = true
	require.NoError(t, New(Options{}).Probe(t.Context(), p), "a raw block volume has no file system")
}
