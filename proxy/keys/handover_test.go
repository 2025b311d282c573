package keys

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	spdkUser  = 64123 // users and groups that do not exist on the host
	spdkGroup = 64124
	otherUser = 64125
)

func needRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to other users")
	}
}

func ownerOf(t *testing.T, path string) (uid, gid int) {
	info, err := os.Lstat(path)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}

func assertOwner(t *testing.T, path string, uid, gid int) {
	t.Helper()
	u, g := ownerOf(t, path)
	assert.Equal(t, [2]int{uid, gid}, [2]int{u, g}, path)
}

// Files that are not keys keep their owner, wherever they are in the directory listing.
func TestHandOverSkipsOtherFiles(t *testing.T) {
	needRoot(t)
	f := newFolder(t)
	foreign := []string{"README", "x.key.tmp", ".hidden.key", "with space.key", "z.pem"}
	for i, name := range foreign {
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, name), []byte(oneSecret), 0o600))
		_, err := f.Place("key"+string(rune('a'+i)), oneSecret)
		require.NoError(t, err)
	}
	given, err := HandOver(f.dir, spdkUser, spdkGroup)
	require.NoError(t, err)
	assert.Equal(t, len(foreign), given)
	for i, name := range foreign {
		assertOwner(t, filepath.Join(f.dir, name), 0, 0)
		assertOwner(t, filepath.Join(f.dir, "key"+string(rune('a'+i))+".key"), spdkUser, spdkGroup)
	}
}

// When spdk_tgt runs as a new user, HandOver gives the keys to that user, even if the same user
// owned them before.
func TestHandOverChangesOwnerOfKeys(t *testing.T) {
	needRoot(t)
	f := newFolder(t)
	_, err := f.Place("a", oneSecret)
	require.NoError(t, err)
	_, err = f.Place("b", otherSecret)
	require.NoError(t, err)
	for _, to := range []struct{ uid, gid, given int }{{spdkUser, spdkGroup, 2}, {spdkUser, spdkGroup, 0}, {0, 0, 2}} {
		given, err := HandOver(f.dir, to.uid, to.gid)
		require.NoError(t, err)
		assert.Equal(t, to.given, given)
		for _, path := range []string{f.dir, filepath.Join(f.dir, "a.key"), filepath.Join(f.dir, "b.key")} {
			assertOwner(t, path, to.uid, to.gid)
		}
	}
	text, err := os.ReadFile(filepath.Join(f.dir, "a.key"))
	require.NoError(t, err)
	assert.Equal(t, oneSecret, string(text))
	info, err := os.Stat(filepath.Join(f.dir, "a.key"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

// If HandOver crashes between two files, or if only the directory has a new owner, the next call
// changes the owner of the files that still belong to root.
func TestInterruptedHandOverIsCompleted(t *testing.T) {
	needRoot(t)
	f := newFolder(t)
	for _, name := range []string{"a", "b"} {
		_, err := f.Place(name, oneSecret)
		require.NoError(t, err)
	}
	require.NoError(t, os.Chown(filepath.Join(f.dir, "a.key"), spdkUser, spdkGroup))
	require.NoError(t, os.Chown(f.dir, spdkUser, spdkGroup))
	given, err := HandOver(f.dir, spdkUser, spdkGroup)
	require.NoError(t, err)
	assert.Equal(t, 1, given)
	assertOwner(t, filepath.Join(f.dir, "b.key"), spdkUser, spdkGroup)
}

func TestHandOverOfAMissingDirectoryDoesNothing(t *testing.T) {
	given, err := HandOver(filepath.Join(t.TempDir(), "none"), os.Geteuid(), os.Getegid())
	require.NoError(t, err)
	assert.Zero(t, given)
}

// The directory's previous owner cannot trick root into changing the owner of unrelated files.
func TestHandOverChangesOnlyKeys(t *testing.T) {
	needRoot(t)
	outside := filepath.Join(t.TempDir(), "outside")
	for name, plant := range map[string]func(path string) error{
		"a link":                func(path string) error { return os.Symlink(outside, path) },
		"a hard link":           func(path string) error { return os.Link(outside, path) },
		"a FIFO":                func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":           func(path string) error { return os.Mkdir(path, 0o700) },
		"not a key":             func(path string) error { return os.WriteFile(path, []byte("root:x:0:0::/root:"), 0o600) },
		"too long":              func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"mode 644":              func(path string) error { return os.WriteFile(path, []byte(oneSecret), 0o644) },
		"owned by a third user": func(path string) error { return writeAs(path, otherUser) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(outside))
			require.NoError(t, os.WriteFile(outside, []byte(oneSecret), 0o600))
			f := newFolder(t)
			_, err := f.Place("good", oneSecret)
			require.NoError(t, err)
			require.NoError(t, os.Chown(filepath.Join(f.dir, "good.key"), otherUser-10, 0))
			path := filepath.Join(f.dir, "planted.key")
			require.NoError(t, plant(path))
			// changed by the directory's previous owner
			require.NoError(t, os.Chown(f.dir, otherUser-10, 0))
			uid, gid := ownerOf(t, path)

			given, err := HandOver(f.dir, spdkUser, spdkGroup)
			require.ErrorContains(t, err, path)
			assert.NotContains(t, err.Error(), oneSecret)
			assert.Equal(t, 1, given, "the others are handed over")
			assertOwner(t, filepath.Join(f.dir, "good.key"), spdkUser, spdkGroup)
			assertOwner(t, path, uid, gid)
			assertOwner(t, outside, 0, 0)
		})
	}

	t.Run("the directory is a link", func(t *testing.T) {
		f := newFolder(t)
		_, err := f.Place("a", oneSecret)
		require.NoError(t, err)
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(f.dir, link))
		_, err = HandOver(link, spdkUser, spdkGroup)
		require.ErrorContains(t, err, "is a link")
		assertOwner(t, f.dir, 0, 0)
		assertOwner(t, filepath.Join(f.dir, "a.key"), 0, 0)
	})
	t.Run("the directory has mode 755", func(t *testing.T) {
		f := newFolder(t)
		require.NoError(t, os.Chmod(f.dir, 0o755))
		_, err := HandOver(f.dir, spdkUser, spdkGroup)
		require.ErrorContains(t, err, "chmod 700")
		assertOwner(t, f.dir, 0, 0)
	})
}

func writeAs(path string, uid int) error {
	if err := os.WriteFile(path, []byte(oneSecret), 0o600); err != nil {
		return err
	}
	return os.Chown(path, uid, uid)
}
