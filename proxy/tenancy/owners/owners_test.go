package owners

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
)

func open(t *testing.T, path string) (*File, *logtest.Log) {
	log := new(logtest.Log)
	f, err := Open(path, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	return f, log
}

func TestOwnersSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owners")
	f, _ := open(t, path)
	assert.Empty(t, f.Of("red"))
	f.Retain("red", nil)
	require.NoFileExists(t, path, "nothing has changed")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { f.Add("red", fmt.Sprint("nqn.r", i)) })
		all.Go(func() { f.Add("blue", "nqn.b") })
	}
	all.Wait()
	f, _ = open(t, path)
	assert.Len(t, f.Of("red"), 20)
	assert.Equal(t, []string{"nqn.b"}, f.Of("blue"))
	f.Retain("red", map[string]bool{"nqn.r3": true, "nqn.b": true})
	f, _ = open(t, path)
	assert.Equal(t, []string{"nqn.r3"}, f.Of("red"))
	assert.Equal(t, []string{"nqn.b"}, f.Of("blue"))
	list, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, list, 1, "no temporary files are left")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDamagedFileIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owners")
	require.NoError(t, os.WriteFile(path, []byte(`{"subsystems":`), 0o600))
	_, err := Open(path, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "remove it")
}

func TestFailedWriteIsLoggedAndRetried(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	path := filepath.Join(dir, "owners")
	f, log := open(t, path)
	f.Add("red", "nqn.1")
	assert.Contains(t, log.String(), "cannot store which tenants own which subsystems")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f.Add("red", "nqn.2")
	f, _ = open(t, path)
	assert.ElementsMatch(t, []string{"nqn.1", "nqn.2"}, f.Of("red"))
}

func TestNilFileRecordsNothing(t *testing.T) {
	var f *File
	f.Add("red", "nqn.1")
	f.Retain("red", nil)
	assert.Empty(t, f.Of("red"))
}
