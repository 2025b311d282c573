package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A record that cannot be written is an error, and what lay in its way does not become the record.
func TestRecordCannotBeWritten(t *testing.T) {
	for name, old := range map[string]bool{"the first": false, "a later one": true} {
		t.Run(name, func(t *testing.T) {
			staging := t.TempDir()
			if old {
				require.NoError(t, stageRecord{VolumeID: volID, Targets: []string{"/old"}}.write(staging))
			}
			// A dangling link is renamed as a file is, but cannot be opened.
			require.NoError(t, os.Symlink(filepath.Join(staging, "missing", "x"), filepath.Join(staging, recordName+".new")))
			require.ErrorContains(t, stageRecord{VolumeID: volID}.write(staging), "write the stage record")
			r, found, err := readRecord(staging, volID)
			require.NoError(t, err)
			assert.Equal(t, old, found)
			if old {
				assert.Equal(t, []string{"/old"}, r.Targets)
			}
		})
	}
}

// The record does not grow with every pod that there was on the node.
func TestRecordForgetsPublications(t *testing.T) {
	staging := t.TempDir()
	require.NoError(t, stageRecord{VolumeID: volID}.write(staging))
	mounted := map[string]bool{"/stays": true}
	for _, target := range []string{"/stays", "/gone", "/next", "/next"} {
		r, _, err := readRecord(staging, volID)
		require.NoError(t, err)
		require.NoError(t, r.publishedAt(staging, target, func(path string) bool { return mounted[path] }))
	}
	r, found, err := readRecord(staging, volID)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, []string{"/stays", "/next"}, r.Targets)
}
