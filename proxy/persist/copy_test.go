package persist

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

const (
	proxyUser = 64123 // ids that no real user on the host has
	spdkUser  = 64124
	spdkGroup = 64125
)

const someSaved = `{"spdkgate":{"release":"v26.05"},"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_null_create","params":{"name":"n"}}]}]}`

// copied contains a saved configuration that belongs to another user, and a directory for
// spdk_tgt's copy.
type copied struct {
	t      *testing.T
	folder *Folder
	dir    string
	to     string // path of the copy
}

func newCopied(t *testing.T) copied {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the owners of files")
	}
	dir, run := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Mkdir(run, 0o711))
	require.NoError(t, os.Chown(run, spdkUser, spdkGroup))
	require.NoError(t, os.WriteFile(filepath.Join(dir, Current), []byte(someSaved), 0o600))
	require.NoError(t, os.Chown(filepath.Join(dir, Current), proxyUser, proxyUser))
	require.NoError(t, os.Chown(dir, proxyUser, proxyUser))
	f, err := OpenFolder(dir, 10)
	require.NoError(t, err)
	return copied{t, f, dir, filepath.Join(run, "saved.json")}
}

func (c copied) copy() error { return c.folder.CopyCurrent(c.to, spdkUser, spdkGroup) }

// names lists the files in the directory of the copy.
func (c copied) names() (names []string) {
	entries, err := os.ReadDir(filepath.Dir(c.to))
	require.NoError(c.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (c copied) assertCopied() {
	c.t.Helper()
	info, err := os.Lstat(c.to)
	require.NoError(c.t, err)
	st := info.Sys().(*syscall.Stat_t)
	assert.Equal(c.t, [2]uint32{spdkUser, spdkGroup}, [2]uint32{st.Uid, st.Gid})
	assert.Equal(c.t, os.FileMode(0o400), info.Mode(), "a regular file that only its user can read")
	text, err := os.ReadFile(c.to)
	require.NoError(c.t, err)
	assert.Equal(c.t, someSaved, string(text))
	assert.Equal(c.t, []string{"saved.json"}, c.names(), "nothing is left over")
}

func TestCopyIsReadableByTheGivenUser(t *testing.T) {
	c := newCopied(t)
	require.NoError(t, c.copy())
	c.assertCopied()
	require.NoError(t, c.copy(), "again")
	c.assertCopied()
}

// The owner of the directory of saved configurations cannot trick root into reading another file.
func TestCopyReadsOnlyTheCurrentFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	for name, plant := range map[string]func(path string) error{
		"a link":                    func(path string) error { return os.Symlink(secret, path) },
		"a file with a second name": func(path string) error { return os.Link(secret, path) },
		"a FIFO":                    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":               func(path string) error { return os.Mkdir(path, 0o700) },
		"owned by another user":     func(path string) error { return writeAs(path, spdkUser, 0o600) },
		"accessible to others":      func(path string) error { return writeAs(path, proxyUser, 0o666) },
		"a dangling link":           func(path string) error { return os.Symlink(secret+".none", path) },
		"a link in the directory": func(path string) error {
			if err := writeAs(path+".other", proxyUser, 0o600); err != nil {
				return err
			}
			return os.Symlink(filepath.Base(path)+".other", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(secret))
			require.NoError(t, os.WriteFile(secret, []byte(someSaved), 0o600))
			c := newCopied(t)
			current := filepath.Join(c.dir, Current)
			require.NoError(t, os.Remove(current))
			require.NoError(t, plant(current))
			require.ErrorIs(t, c.copy(), directory.ErrSuspect)
			_, err := c.folder.Prepare()
			require.ErrorIs(t, err, directory.ErrSuspect)
			assert.Empty(t, c.names())
			before, err := os.Lstat(current)
			require.NoError(t, err)
			_, err = OpenFolder(c.dir, 10)
			require.NoError(t, err)
			after, err := os.Lstat(current)
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after), "the file is unchanged")
		})
	}
	t.Run("the directory becomes a link", func(t *testing.T) {
		c, theirs := newCopied(t), newCopied(t)
		require.NoError(t, os.RemoveAll(c.dir))
		require.NoError(t, os.Symlink(theirs.dir, c.dir))
		require.ErrorIs(t, c.copy(), directory.ErrSuspect)
		require.ErrorIs(t, c.folder.Use(Current), directory.ErrSuspect)
		_, err := c.folder.Prepare()
		require.ErrorIs(t, err, directory.ErrSuspect)
		assert.Empty(t, c.names())
	})
	t.Run("a file edited by an administrator", func(t *testing.T) {
		c := newCopied(t)
		require.NoError(t, os.Chown(filepath.Join(c.dir, Current), 0, 0))
		require.NoError(t, c.copy())
		c.assertCopied()
	})
	t.Run("a damaged file", func(t *testing.T) {
		c := newCopied(t)
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, Current), []byte(`{"subsystems":`), 0o600))
		require.ErrorContains(t, c.copy(), Current)
		assert.Empty(t, c.names())
	})
}

// The owner of the copy's directory cannot trick root into writing another file.
func TestCopyWritesOnlyItsDestination(t *testing.T) {
	for name, planted := range map[string]string{"the copy": "saved.json", "its temporary name": directory.Temp + "saved.json"} {
		t.Run(name+" is a link", func(t *testing.T) {
			c := newCopied(t)
			outside := filepath.Join(t.TempDir(), "outside")
			require.NoError(t, os.WriteFile(outside, []byte("theirs"), 0o640))
			require.NoError(t, os.Symlink(outside, filepath.Join(filepath.Dir(c.to), planted)))
			require.NoError(t, c.copy())
			c.assertCopied()
			text, err := os.ReadFile(outside)
			require.NoError(t, err)
			assert.Equal(t, "theirs", string(text))
			info, err := os.Stat(outside)
			require.NoError(t, err)
			assert.Equal(t, [2]any{os.FileMode(0o640), uint32(0)}, [2]any{info.Mode(), info.Sys().(*syscall.Stat_t).Uid})
		})
		t.Run(name+" is a directory", func(t *testing.T) {
			c := newCopied(t)
			require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(c.to), planted), 0o700))
			require.ErrorContains(t, c.copy(), c.to)
			assert.Equal(t, []string{planted}, c.names())
		})
	}
	t.Run("the directory is a link", func(t *testing.T) {
		c := newCopied(t)
		run := filepath.Dir(c.to)
		require.NoError(t, os.Rename(run, run+".moved"))
		require.NoError(t, os.Symlink(run+".moved", run))
		require.ErrorIs(t, c.copy(), directory.ErrSuspect)
		assert.Empty(t, c.names())
	})
	for name, change := range map[string]func(run string) error{
		"the directory is accessible to all users": func(run string) error { return os.Chmod(run, 0o1777) },
		"the directory is accessible to a group":   func(run string) error { return os.Chmod(run, 0o770) },
		"the directory belongs to another user":    func(run string) error { return os.Chown(run, proxyUser, proxyUser) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopied(t)
			require.NoError(t, change(filepath.Dir(c.to)))
			require.ErrorContains(t, c.copy(), "only root and user 64124")
			assert.Empty(t, c.names())
		})
	}
	for _, path := range []string{"saved.json", "/", "/run/.."} {
		c := newCopied(t)
		require.ErrorContains(t, c.folder.CopyCurrent(path, spdkUser, spdkGroup), "absolute path", path)
	}
}

// List includes files that root refuses to read because they belong to another user.
func TestSuspiciousFilesAreListed(t *testing.T) {
	c := newCopied(t)
	require.NoError(t, writeAs(filepath.Join(c.dir, "held-x.json"), spdkUser, 0o600))
	list, err := c.folder.List()
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.NoError(t, list[0].Damaged)
	require.ErrorIs(t, list[1].Damaged, directory.ErrSuspect)
	require.ErrorIs(t, c.folder.Use("held-x.json"), directory.ErrSuspect)
}

func writeAs(path string, uid int, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(someSaved), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil { // regardless of the umask
		return err
	}
	return os.Chown(path, uid, uid)
}
