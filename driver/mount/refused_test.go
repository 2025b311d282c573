package mount

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// tableMount mounts by adding lines to a mountTable.
type tableMount struct {
	mountutils.Interface
	table *mountTable
	line  func(target string, options []string) string // nil makes mounting fail
}

var errMount = errors.New("mount: wrong fs type")

func (m tableMount) Mount(_, target, _ string, options []string) error {
	if m.line == nil {
		return errMount
	}
	b, err := os.ReadFile(m.table.file)
	require.NoError(m.table.t, err)
	m.table.write(append(strings.Split(strings.TrimSpace(string(b)), "\n"), m.line(target, options)))
	return nil
}

func (m *mountTable) lines() int {
	b, err := os.ReadFile(m.file)
	require.NoError(m.t, err)
	return strings.Count(string(b), "\n")
}

// If the mounts cannot be listed, every call fails and changes nothing.
func TestEveryCallFailsIfMountsCannotBeListed(t *testing.T) {
	for name, file := range map[string]string{"missing": "/missing/mountinfo", "invalid": "/etc/passwd"} {
		t.Run(name, func(t *testing.T) {
			m, _ := fakeMounts(t)
			m.mountInfo = file
			m.mount = tableMount{}
			m.umount = func(path string) error { t.Errorf("unmounted %s", path); return nil }
			dir := t.TempDir()
			for what, do := range map[string]func() error{
				"At":               func() error { _, err := m.At(dir); return err },
				"Bind":             func() error { return m.Bind(t.Context(), "/stage", filepath.Join(dir, "x"), false, nil) },
				"Unmount":          func() error { return m.Unmount(t.Context(), dir) },
				"UnmountAndRemove": func() error { return m.UnmountAndRemove(t.Context(), dir) },
				"Check":            func() error { return m.Check(t.Context(), dir) },
				"Grow":             func() error { _, err := m.Grow(t.Context(), dir); return err },
				"Stats":            func() error { _, err := m.Stats(t.Context(), dir); return err },
			} {
				require.ErrorContains(t, do(), "list mounts", what)
			}
			require.DirExists(t, dir)
			d := newDisk(t, 8)
			m.exec = &fakeExec{answer: func(args []string) ([]byte, error) { t.Errorf("ran %v", args); return nil, nil }}
			require.ErrorContains(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: filepath.Join(dir, "x"), MayFormat: true}), "list mounts")
			require.ErrorContains(t, m.BindDevice(t.Context(), d.device, filepath.Join(dir, "x"), false), "list mounts")
			require.NoDirExists(t, filepath.Join(dir, "x"))
		})
	}
}

// If the device of a mount cannot be determined, At fails rather than reporting the mount as stale.
func TestUnknownMountDeviceIsReported(t *testing.T) {
	m, _ := fakeMounts(t, line("259:5", "/", "/stage", "rw", "xfs", "/dev/nvme0n5", "rw"))
	require.NoError(t, os.WriteFile(filepath.Join(m.sysBlock, "259:5"), nil, 0o600)) // a file instead of a link
	_, err := m.At("/stage")
	require.ErrorContains(t, err, "find the device mounted at /stage")
}

func TestBindHandlesExistingMounts(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	staged := line("259:1", "/", "/stage", "rw", "xfs", "/dev/nvme0n1", "rw")
	made := func(target string, options []string) string {
		return line("259:1", "/", target, strings.Join(options, ","), "xfs", "/dev/nvme0n1", "rw")
	}
	t.Run("stale", func(t *testing.T) {
		m, table := fakeMounts(t, staged, line("259:9", "/", target, "rw", "xfs", "/dev/nvme1n1", "rw"))
		m.mount = tableMount{table: table, line: made}
		require.NoError(t, m.Bind(t.Context(), "/stage", target, false, nil))
		p, err := m.At(target)
		require.NoError(t, err)
		assert.Equal(t, "/dev/nvme0n1", p.Device)
		assert.Equal(t, 2, table.lines(), "the stale mount is unmounted")
		table.busy = true
		table.write([]string{staged, line("259:9", "/", target, "rw", "xfs", "/dev/nvme1n1", "rw")})
		require.NoError(t, m.Bind(t.Context(), "/stage", target, false, nil), "its device is gone, so it is detached")
		assert.Equal(t, []string{target}, table.detached)
		assert.Equal(t, 2, table.lines())
	})
	t.Run("as requested", func(t *testing.T) {
		m, table := fakeMounts(t, staged, made(target, []string{"rw", "nosuid"}))
		m.mount = tableMount{}
		require.NoError(t, m.Bind(t.Context(), "/stage", target, false, []string{"nosuid"}))
		assert.Equal(t, 2, table.lines())
	})
	for name, existing := range map[string]string{
		"read-only":            made(target, []string{"ro"}),
		"without a flag":       made(target, []string{"rw"}),
		"another volume":       line("259:9", "/", target, "rw", "xfs", "/dev/nvme1n1", "rw"),
		"part of a volume":     line("259:1", "/below", target, "rw,nosuid", "xfs", "/dev/nvme0n1", "rw"),
		"another's raw device": line("0:5", "/nvme0n1", target, "rw,nosuid", "devtmpfs", "udev", "rw"),
	} {
		t.Run(name, func(t *testing.T) {
			m, table := fakeMounts(t, staged, existing)
			require.NoError(t, os.Symlink("x/nvme1n1", filepath.Join(m.sysBlock, "259:9")))
			m.mount = tableMount{}
			require.ErrorIs(t, m.Bind(t.Context(), "/stage", target, false, []string{"nosuid"}), ErrConflict)
			assert.Equal(t, 2, table.lines())
		})
	}
	t.Run("mounted with other options than requested", func(t *testing.T) {
		m, table := fakeMounts(t, staged)
		m.mount = tableMount{table: table, line: func(target string, _ []string) string { return made(target, []string{"rw"}) }}
		require.ErrorIs(t, m.Bind(t.Context(), "/stage", target, true, nil), ErrConflict)
		assert.Equal(t, 1, table.lines(), "the mount is undone")
	})
	t.Run("mount fails", func(t *testing.T) {
		m, _ := fakeMounts(t, staged)
		m.mount = tableMount{}
		require.ErrorIs(t, m.Bind(t.Context(), "/stage", target, false, nil), errMount)
		require.ErrorIs(t, m.Bind(t.Context(), "/stage", "target", false, nil), ErrInvalid)
		require.ErrorIs(t, m.Bind(t.Context(), "stage", target, false, nil), ErrInvalid)
		require.ErrorIs(t, m.Bind(t.Context(), "/stage", target, false, []string{"bind"}), ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m.mount = nil // must not be called
		require.ErrorIs(t, m.Bind(ctx, "/stage", target, false, nil), context.Canceled)
	})
}

// If any step of staging fails, FormatAndMount fails, and nothing is mounted.
func TestAnyFailedStepFailsStage(t *testing.T) {
	tools := func(fail string, code int) *fakeExec {
		return &fakeExec{answer: func(args []string) ([]byte, error) {
			switch {
			case args[0] == fail && code == 0:
				return nil, &exec.Error{Name: fail, Err: exec.ErrNotFound}
			case args[0] == fail:
				return exits(code, fail+" said no")(args)
			case args[0] == "blkid":
				return exits(2, "")(args)
			}
			return nil, nil
		}}
	}
	for name, c := range map[string]struct {
		exec  *fakeExec
		flags []string
		want  error
		says  string
	}{
		"flags":         {tools("", 0), []string{"bind"}, ErrInvalid, "not allowed"},
		"blkid":         {tools("blkid", 4), nil, ErrUnreadable, "blkid said no"},
		"blkid missing": {tools("blkid", 0), nil, ErrUnsupported, "blkid is not installed"},
		"mkfs":          {tools("mkfs.ext4", 1), nil, nil, "exit code 1: mkfs.ext4 said no"},
		"mkfs missing":  {tools("mkfs.ext4", 0), nil, ErrUnsupported, "mkfs.ext4 is not installed"},
		"mount":         {tools("", 0), nil, errMount, "wrong fs type"},
	} {
		t.Run(name, func(t *testing.T) {
			d, path := newDisk(t, 8), filepath.Join(t.TempDir(), "stage")
			m, table := fakeMounts(t)
			m.exec, m.mount = c.exec, tableMount{}
			err := m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, Flags: c.flags, MayFormat: true})
			require.ErrorContains(t, err, c.says)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			assert.Zero(t, table.lines())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			c.exec.ran = nil
			require.ErrorIs(t, m.FormatAndMount(ctx, Stage{Device: d.device, Path: path, MayFormat: true}), context.Canceled)
			assert.Empty(t, c.exec.ran, "nothing is run after the context has ended")
		})
	}
	m := testMounter(t, Options{Exec: tools("e2fsck", 0)})
	require.ErrorIs(t, m.fsck("/dev/x"), ErrUnsupported)
	require.ErrorContains(t, m.format(&Stage{Device: filepath.Join(t.TempDir(), "missing"), FSType: ext4}, contents{}), "before mkfs")
	require.ErrorIs(t, m.FormatAndMount(t.Context(), Stage{Device: t.TempDir(), Path: "/x"}), ErrInvalid, "not a block device")
}

// mount(8) succeeds even if it mounts a write-protected device read-only. A mount that differs from
// the request is undone.
func TestMountThatDiffersFromTheRequestIsUndone(t *testing.T) {
	d, path := newDisk(t, 8), filepath.Join(t.TempDir(), "stage")
	number, err := blockRdev(d.device)
	require.NoError(t, err)
	for _, c := range []struct {
		number, options string
		readOnly, fails bool
	}{
		{number, "rw", false, false}, {number, "ro", true, false}, {number, "ro", false, true}, {number, "rw", true, true}, {"259:9", "rw", false, true},
	} {
		m, table := fakeMounts(t, line("259:1", "/", "/other", "rw", "xfs", "/dev/nvme0n1", "rw"))
		m.sysBlock = "/sys/dev/block"
		m.mount = tableMount{table: table, line: func(target string, _ []string) string {
			return line(c.number, "/", target, c.options, "xfs", d.device, c.options)
		}}
		err := m.mountDevice(t.Context(), Stage{Device: d.device, Path: path, FSType: xfs, ReadOnly: c.readOnly}, number, &operation.Step{})
		if c.fails {
			require.ErrorIs(t, err, ErrConflict, "%+v", c)
			assert.Equal(t, 1, table.lines(), "%+v", c)
		} else {
			require.NoError(t, err, "%+v", c)
			assert.Equal(t, 2, table.lines(), "%+v", c)
		}
	}
}

// If a file system cannot be grown or its size cannot be read, Grow fails.
func TestGrowReportsFailures(t *testing.T) {
	d := newDisk(t, 8)
	number, err := blockRdev(d.device)
	require.NoError(t, err)
	dir := t.TempDir()
	on := func(path, options, fsType string) *Mounter {
		m, _ := fakeMounts(t, line(number, "/", path, options, fsType, d.device, "rw"))
		m.sysBlock = "/sys/dev/block"
		return m
	}
	refuses := func(m *Mounter, kind error, says string) {
		t.Helper()
		size, err := m.Grow(t.Context(), dir)
		require.ErrorContains(t, err, says)
		if kind != nil {
			require.ErrorIs(t, err, kind)
		}
		assert.Zero(t, size)
	}
	refuses(on("/elsewhere", "rw", ext4), ErrNotMounted, "grow the file system")
	refuses(on(dir, "ro", ext4), ErrConflict, "read-only")
	refuses(on(dir, "rw", "f2fs"), ErrInvalid, "only ext4, xfs, btrfs")
	refuses(on(dir, "rw", ext4), ErrDamaged, "no ext4 superblock")
	refuses(on(dir, "rw", xfs), nil, "geometry of the xfs at "+dir)
	refuses(on(dir, "rw", btrfs), nil, "size of the btrfs at "+dir)
	noDevice := on(dir, "rw", ext4)
	noDevice.dev = t.TempDir()
	refuses(noDevice, os.ErrNotExist, "stat")
	_, err = xfsSize(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ext4Size(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ext4Size(os.DevNull)
	require.ErrorContains(t, err, "read the superblock")

	command(t, "mkfs.ext4", "-q", "-b", "4096", d.device)
	m := on(dir, "rw", ext4)
	ran := &fakeExec{answer: exits(1, "resize2fs said no")}
	m.exec = ran
	size, err := m.Grow(t.Context(), dir)
	require.NoError(t, err)
	assert.EqualValues(t, 8*mib, size, "it already has the size of the device")
	assert.Empty(t, ran.ran)
	size, err = m.DeviceSize(t.Context(), dir)
	require.ErrorIs(t, err, ErrInvalid, "a directory is not a device")
	assert.Zero(t, size)
	m.canGrow = func(string) error { return nil }
	for more, grows := range map[int64]bool{512: false, 4095 / 512 * 512: false, 4096: true, 4096 + 512: true} {
		d.resizeBytes(8*mib + more)
		_, err = m.Grow(t.Context(), dir)
		assert.Equal(t, grows, err != nil, "a device with %d bytes more: a block has 4096", more)
		assert.Equal(t, grows, len(ran.ran) > 0, more)
		ran.ran = nil
	}
	d.resize(16)
	size, err = m.DeviceSize(t.Context(), d.device)
	require.NoError(t, err)
	assert.EqualValues(t, 16*mib, size)
	m.canGrow = withoutCapability
	refuses(m, ErrUnsupported, "delete the pods that use the volume on this node")
	assert.Empty(t, ran.ran)
	m.canGrow = func(string) error { return nil }
	refuses(m, nil, "resize2fs "+d.device+": exit code 1: resize2fs said no")
	ran.answer = func([]string) ([]byte, error) { return nil, &exec.Error{Name: "resize2fs", Err: exec.ErrNotFound} }
	refuses(m, ErrUnsupported, "not installed")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran.ran = nil
	_, err = m.Grow(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, ran.ran)
}

// Paths that may contain data are not removed. A path that is not a file is not replaced with a raw
// block volume.
func TestExistingPathsAreKept(t *testing.T) {
	m, dir := testMounter(t, Options{}), t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, m.UnmountAndRemove(t.Context(), filepath.Join(file, "x")), "not a directory")
	require.NoError(t, m.UnmountAndRemove(t.Context(), filepath.Join(dir, "missing")))
	require.NoError(t, m.UnmountAndRemove(t.Context(), file), "raw block volumes are mounted over empty files")
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), file), ErrNotEmpty)
	require.FileExists(t, file)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("x", link))
	require.ErrorIs(t, m.UnmountAndRemove(t.Context(), link), ErrNotEmpty)

	require.ErrorContains(t, makeFile(filepath.Join(file, "below", "x")), "not a directory")
	require.NoError(t, makeFile(file), "it exists")
	require.NoError(t, makeFile(filepath.Join(dir, "new", "x")))
	require.FileExists(t, filepath.Join(dir, "new", "x"))
	require.ErrorIs(t, makeFile(dir), ErrConflict)
	require.ErrorIs(t, makeFile(link), ErrConflict)
	require.ErrorIs(t, setReadOnly(filepath.Join(dir, "missing"), true), os.ErrNotExist)
	require.ErrorContains(t, setReadOnly(file, true), "set "+file)
}

// If the output of a tool is long, errors contain only its beginning and end.
func TestLongToolOutputIsShortened(t *testing.T) {
	exact := strings.Repeat("x", 2000)
	assert.Equal(t, exact, shorten(exact))
	assert.Equal(t, strings.Repeat("a", 1000)+" … "+strings.Repeat("z", 1000), shorten(strings.Repeat("a", 1000)+"bcd"+strings.Repeat("z", 1000)))
}

// Devices that are too small for the mark of an interrupted mkfs can be scanned.
func TestSmallDevicesCanBeScanned(t *testing.T) {
	for _, size := range []int64{1, 512 << 10, 1<<20 - 1} {
		f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		found, err := scan(t.Context(), f)
		require.NoError(t, err)
		assert.False(t, found.marked, size)
		require.NoError(t, f.Truncate(0))
		_, err = scan(t.Context(), f)
		require.ErrorIs(t, err, ErrUnreadable, "size 0")
		require.NoError(t, f.Close())
	}
}

// countingMounts accepts each mount.
type countingMounts struct {
	mountutils.Interface
	n int
}

func (c *countingMounts) Mount(string, string, string, []string) error { c.n++; return nil }

// The device is write-protected during the mount only if several nodes may mount it read-only. This
// device is a file, which cannot be write-protected.
func TestOnlySharedReadOnlyMountsProtectTheDevice(t *testing.T) {
	device := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.WriteFile(device, nil, 0o600))
	for _, c := range []struct{ readOnly, shared, protects bool }{
		{false, false, false}, {true, false, false}, {false, true, false}, {true, true, true},
	} {
		mounts := &countingMounts{}
		m := &Mounter{mount: mounts}
		err := m.mountProtected(Stage{Device: device, Path: t.TempDir(), FSType: ext4, ReadOnly: c.readOnly, Shared: c.shared})
		if c.protects {
			require.Error(t, err)
			assert.Zero(t, mounts.n)
			continue
		}
		require.NoError(t, err, "%+v", c)
		assert.Equal(t, 1, mounts.n)
	}
}
