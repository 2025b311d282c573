package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mountTable is a mountinfo file for tests. Unmounting removes lines from it.
type mountTable struct {
	t    *testing.T
	file string
	// busy makes unmounting fail with EBUSY; detaching still works.
	busy     bool
	detached []string
}

func fakeMounts(t *testing.T, lines ...string) (*Mounter, *mountTable) {
	m, table := testMounter(t, Options{}), &mountTable{t: t, file: filepath.Join(t.TempDir(), "mountinfo")}
	table.write(lines)
	m.mountInfo, m.sysBlock, m.umount, m.detach = table.file, t.TempDir(), table.umount, table.detach
	require.NoError(t, os.Symlink("../../devices/virtual/block/nvme0n1", filepath.Join(m.sysBlock, "259:1")))
	return m, table
}

func (m *mountTable) write(lines []string) {
	text := ""
	for _, l := range lines {
		text += l + "\n"
	}
	require.NoError(m.t, os.WriteFile(m.file, []byte(text), 0o600))
}

func (m *mountTable) umount(path string) error {
	if m.busy {
		return unix.EBUSY
	}
	return m.remove(path)
}

func (m *mountTable) detach(path string) error {
	m.detached = append(m.detached, path)
	return m.remove(path)
}

func (m *mountTable) remove(path string) error {
	b, err := os.ReadFile(m.file)
	require.NoError(m.t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Fields(lines[i])[4] == path {
			m.write(append(lines[:i:i], lines[i+1:]...))
			return nil
		}
	}
	return unix.EINVAL
}

func line(number, root, path, options, fsType, source, superOptions string) string {
	return fmt.Sprintf("36 35 %s %s %s %s shared:1 - %s %s %s", number, root, path, options, fsType, source, superOptions)
}

func TestMountAtAPathIsFound(t *testing.T) {
	m, _ := fakeMounts(t,
		line("0:22", "/", "/proc", "rw,relatime", "proc", "proc", "rw"),
		line("259:1", "/", "/stage", "rw,noatime", "xfs", "/dev/nvme0n1", "rw,nouuid"),
		line("259:1", "/", `/with\040space`, "ro,relatime", "ext4", "/dev/nvme0n1", "rw"),
		line("259:9", "/", "/stale", "rw", "ext4", "/dev/nvme1n1", "rw"),
		line("259:1", "/", "/twice", "rw", "ext4", "/dev/nvme0n1", "rw"),
		line("259:1", "/", "/twice", "ro", "ext4", "/dev/nvme0n1", "ro"),
		line("0:5", "/log", "/dir-of-dev", "rw", "devtmpfs", "udev", "rw"),
	)
	for path, want := range map[string]Point{
		"/stage":      {Device: "/dev/nvme0n1", FSType: "xfs"},
		"/stage/":     {Device: "/dev/nvme0n1", FSType: "xfs"},
		"/with space": {Device: "/dev/nvme0n1", FSType: "ext4", ReadOnly: true},
		"/stale":      {FSType: "ext4", Stale: true},
		"/twice":      {Device: "/dev/nvme0n1", FSType: "ext4", ReadOnly: true},
		"/proc":       {FSType: "proc"},
		"/dir-of-dev": {FSType: "devtmpfs"},
	} {
		p, err := m.At(path)
		require.NoError(t, err, path)
		want.Path = filepath.Clean(path)
		assert.Equal(t, want, Point{Path: p.Path, Device: p.Device, FSType: p.FSType, ReadOnly: p.ReadOnly, Block: p.Block, Stale: p.Stale}, path)
	}
	for _, path := range []string{"/", "/stag", "/stage/below", "/missing/dir"} {
		_, err := m.At(path)
		require.ErrorIs(t, err, ErrNotMounted, path)
	}
	m.mountInfo = "/missing/mountinfo"
	_, err := m.At("/stage")
	require.ErrorContains(t, err, "list mounts")
	require.NotErrorIs(t, err, ErrNotMounted)
}

// If At cannot resolve a path, it fails; it must not report that nothing is mounted there.
func TestUnusablePathIsNotReportedAsUnmounted(t *testing.T) {
	m, _ := fakeMounts(t)
	_, err := m.At("stage")
	require.ErrorIs(t, err, ErrInvalid)
	require.NotErrorIs(t, err, ErrNotMounted)
	loop := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(loop, loop))
	_, err = m.At(filepath.Join(loop, "stage"))
	require.ErrorContains(t, err, "resolve")
	require.NotErrorIs(t, err, ErrNotMounted)
}

func TestMountBelowALinkIsFound(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o700))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "kubelet")))
	m, _ := fakeMounts(t, line("259:1", "/", dir+"/real/stage", "rw", "xfs", "/dev/nvme0n1", "rw"))
	p, err := m.At(dir + "/kubelet/stage")
	require.NoError(t, err)
	assert.Equal(t, "/dev/nvme0n1", p.Device)
}

func TestStaleMountsAreFound(t *testing.T) {
	stale := line("259:9", "/", "/stage", "rw", "ext4", "/dev/nvme1n1", "rw")
	s := Stage{Path: "/stage", Device: "/dev/nvme0n1"}

	m, table := fakeMounts(t, stale, stale)
	_, err := m.Grow(t.Context(), "/stage")
	require.ErrorIs(t, err, ErrNotMounted)
	_, err = m.Stats(t.Context(), "/stage")
	require.ErrorIs(t, err, ErrNotMounted)
	require.ErrorIs(t, m.Bind(t.Context(), "/stage", "/target", false, nil), ErrNotMounted)
	mounted, err := m.isStaged(s, "259:1")
	require.NoError(t, err)
	require.False(t, mounted)
	_, err = m.At("/stage")
	require.ErrorIs(t, err, ErrNotMounted, "both are unmounted")

	table.write([]string{stale, stale})
	table.busy = true
	mounted, err = m.isStaged(s, "259:1")
	require.NoError(t, err)
	require.False(t, mounted)
	require.Equal(t, []string{"/stage", "/stage"}, table.detached, "processes that use it keep nothing from the next pod")
}

func TestUnusableMountsAreDetected(t *testing.T) {
	dir := t.TempDir()
	healthy := Point{Path: dir, options: []string{"rw"}, superOpts: []string{"rw"}}
	require.NoError(t, healthy.checkUsable())
	for name, change := range map[string]func(*Point){
		"removed":      func(p *Point) { p.Stale = true },
		"shutdown":     func(p *Point) { p.superOpts = []string{"rw", "shutdown"} },
		"emergency":    func(p *Point) { p.superOpts = []string{"rw", "emergency_ro"} },
		"readonly":     func(p *Point) { p.superOpts = []string{"ro"} },
		"no directory": func(p *Point) { p.Path += "/missing" },
	} {
		p := healthy
		change(&p)
		require.ErrorIs(t, p.checkUsable(), ErrBroken, name)
	}
	failing := healthy
	failing.Device = filepath.Join(dir, "device")
	require.ErrorIs(t, failing.checkUsable(), ErrUnreadable)
	readOnly := Point{Path: dir, options: []string{"ro"}, superOpts: []string{"ro"}, ReadOnly: true}
	require.NoError(t, readOnly.checkUsable(), "a mount that was requested read-only is not broken")
}

func TestConcurrentUnmountIsNotAnError(t *testing.T) {
	m, table := fakeMounts(t, line("259:1", "/", "/stage", "rw", "xfs", "/dev/nvme0n1", "rw"))
	m.umount = func(path string) error { // another process has already unmounted the path
		require.NoError(t, table.umount(path))
		return unix.EINVAL
	}
	require.NoError(t, m.Unmount(t.Context(), "/stage"))
	m.umount = func(string) error { return unix.EPERM }
	table.write([]string{line("259:1", "/", "/stage", "rw", "xfs", "/dev/nvme0n1", "rw")})
	require.ErrorIs(t, m.Unmount(t.Context(), "/stage"), unix.EPERM)
}
