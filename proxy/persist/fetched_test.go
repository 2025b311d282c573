package persist

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

func TestStoreKeepsPreviousVersions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "copies")
	f, err := OpenFolder(dir, 2)
	require.NoError(t, err)
	at := func(minute int) time.Time { return time.Date(2026, 1, 31, 12, minute, 0, 5e6, time.UTC) }
	store := func(name, text string, minute int) (bool, error) {
		return f.Store(Text{name, at(minute), []byte(text)})
	}
	for _, name := range []string{"", ".", "..", "../current.json", "a/current.json", "notes.json", ".new-current.json", "20260131T120000Z.json", "replaced-x.json", "current.json\n"} {
		_, err := store(name, "{}", 0)
		require.ErrorContains(t, err, "is not the name of a saved configuration", name)
		_, err = f.Text(name)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	stored, err := store(Current, "one", 0)
	require.NoError(t, err)
	assert.True(t, stored)
	stored, err = store(Current, "one", 1)
	require.NoError(t, err)
	assert.False(t, stored, "unchanged")
	got, err := f.Text(Current)
	require.NoError(t, err)
	assert.Equal(t, Text{Current, at(0), []byte("one")}, got)

	// The other host kept its current file as a previous version, which is named after the file's
	// time. The local directory contains the same version.
	_, err = store(Current, "two", 2)
	require.NoError(t, err)
	stored, err = store("20260131T120000.005Z.json", "one", 0)
	require.NoError(t, err)
	assert.False(t, stored, "the file exists already")
	_, err = store("20260131T120000.005Z.json", "else", 0)
	require.ErrorContains(t, err, "copy each host into a directory of its own")
	for i, name := range []string{Held, Held, "replaced-20260131T120000.005Z.json", "20260131T110000.000Z.json", "20260131T100000.000Z.json"} {
		_, err = store(name, name+string(rune('a'+i)), 3)
		require.NoError(t, err)
	}
	names, err := f.previous()
	require.NoError(t, err)
	assert.Len(t, names, 2, "versions beyond keep are removed")
	assert.FileExists(t, filepath.Join(dir, "replaced-20260131T120000.005Z.json"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "held-20260131T120000.005Z.json"), make([]byte, MaxText+1), 0o600))
	_, err = f.Text("held-20260131T120000.005Z.json")
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestFailedStoreKeepsThePreviousFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "copies")
	f, err := OpenFolder(dir, 2)
	require.NoError(t, err)
	_, err = f.Store(Text{Current, time.Now(), []byte("one")})
	require.NoError(t, err)
	working := f.disk
	for at := 1; ; at++ {
		d := &failing{Path: directory.Path(dir), at: at}
		f.disk = d
		_, err := f.Store(Text{Current, time.Now(), []byte("two")})
		f.disk = working
		got, readErr := f.Text(Current)
		require.NoError(t, readErr)
		if err == nil {
			assert.Equal(t, "two", string(got.Bytes))
			require.Greater(t, at, 3)
			return
		}
		require.Contains(t, []string{"one", "two"}, string(got.Bytes))
		require.NoError(t, f.clear())
	}
}
