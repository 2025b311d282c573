package persist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What spdk_tgt loads comes out of the folder, which nobody else writes to.
func TestOnlyFilesOfTheFolderAreUsed(t *testing.T) {
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
}
