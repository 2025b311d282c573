package directory

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Only the owner can read a new file, and Write does not replace an existing file.
func TestWrittenFileIsPrivate(t *testing.T) {
	d := Path(t.TempDir())
	require.NoError(t, d.Write("a", []byte("text")))
	text, info, err := d.Read("a")
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	require.ErrorIs(t, d.Write("a", nil), fs.ErrExist)
}

// A file that another user may have created is not read.
func TestSuspiciousFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	for name, create := range map[string]func(path string) error{
		"a link":             func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a directory":        func(path string) error { return os.Mkdir(path, 0o700) },
		"writable by others": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		require.NoError(t, create(filepath.Join(dir, name)))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "writable by others"), 0o620))
	for _, name := range []string{"a link", "a directory", "writable by others"} {
		_, _, err := Path(dir).Read(name)
		require.ErrorIs(t, err, ErrSuspect, name)
	}
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	_, err := Path(link).List()
	require.ErrorIs(t, err, ErrSuspect, "the directory itself is a link")
}

// If the owner of a file cannot be set, the file is removed, because only root could read it.
func TestFailedWriteForLeavesNoFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, WriteFor(path, []byte("text"), 12345, 12345))
	// Without this capability, even root cannot change a file's owner. The locked thread ends with
	// this test.
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_CHOWN
	require.NoError(t, unix.Capset(&header, &caps[0]))
	require.ErrorIs(t, WriteFor(path, []byte("new"), 12345, 12345), fs.ErrPermission)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
}

func TestUnknownOwnerIsReported(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "a"))
	require.NoError(t, err)
	defer f.Close()
	folder, err := os.Open(dir)
	require.NoError(t, err)
	require.NoError(t, folder.Close())
	require.Error(t, giveToOwner(f, folder))
}
