package persist

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// Only files in the Folder's directory, to which no other user can write, become the target's
// configuration.
func TestOnlyFilesInTheDirectoryAreUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	f, err := OpenFolder(dir, 1)
	require.NoError(t, err)
	const sound = `{"subsystems":[]}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, Current), []byte(sound), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(dir), "planted.json"), []byte(sound), 0o600))
	for _, name := range []string{"../planted.json", filepath.Join(filepath.Dir(dir), "planted.json"), "./" + Current, ""} {
		require.Error(t, f.Use(name), name)
		_, _, err := f.Diff(nil, name, name)
		require.Error(t, err, name)
	}
	require.NoError(t, f.Use(Current))
	_, _, err = f.Diff(nil, Current, Held)
	require.ErrorIs(t, err, ErrNothingHeld)
	_, _, err = f.Diff(nil, Held, Current)
	require.ErrorIs(t, err, ErrNothingHeld)
	_, _, err = f.Diff(nil, Current, "20260101T000000.000Z.json")
	require.ErrorContains(t, err, "saved list")
	require.NotErrorIs(t, err, ErrNothingHeld)
	require.NoError(t, os.WriteFile(filepath.Join(dir, Held), []byte("{"), 0o600))
	_, _, err = f.Diff(nil, Current, Held)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNothingHeld)
}

// Files are listed in the order in which an administrator is most likely to need them.
func TestSavedFilesAreListedInOrder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	f, err := OpenFolder(dir, 9)
	require.NoError(t, err)
	const sound = `{"subsystems":[]}`
	order := []string{Current, Held, "20260103T000000.000Z.json", "20260102T000000.000Z.json", "damaged-20260104T000000.000Z.json", "before-20260101T000000.000Z.json"}
	for i, name := range order {
		text := sound
		if i == 4 {
			text = "{"
		}
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		at := time.Date(2026, 1, 10-i, 0, 0, 0, 0, time.UTC)
		if i < 2 {
			at = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		require.NoError(t, os.Chtimes(path, at, at))
	}
	for _, name := range []string{directory.Temp + Current, "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(sound), 0o600))
	}
	list, err := f.List()
	require.NoError(t, err)
	var names []string
	for i, s := range list {
		names = append(names, s.Name)
		assert.Equal(t, i == 4, s.Damaged != nil, s.Name)
	}
	assert.Equal(t, order, names)
}
