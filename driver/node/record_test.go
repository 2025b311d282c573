package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/request"
)

// If a stage record cannot be written, the call fails, and any previous record is kept.
func TestUnwritableRecordFailsTheCall(t *testing.T) {
	for name, old := range map[string]bool{"the first": false, "a later one": true} {
		t.Run(name, func(t *testing.T) {
			staging := t.TempDir()
			if old {
				require.NoError(t, stageRecord{VolumeID: volID, Targets: []string{"/old"}}.write(staging))
			}
			// A dangling symbolic link can be renamed like a file, but cannot be opened.
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

// A record counts as written only after its directory has been synced.
func TestSyncDirFailsForMissingDirectory(t *testing.T) {
	require.NoError(t, syncDir(t.TempDir()))
	require.Error(t, syncDir(filepath.Join(t.TempDir(), "missing")))
}

// The stage record does not grow with each pod that uses the volume.
func TestRecordDropsUnmountedTargets(t *testing.T) {
	staging := t.TempDir()
	require.NoError(t, stageRecord{VolumeID: volID}.write(staging))
	mounted := map[string]bool{"/stays": true}
	for _, target := range []string{"/stays", "/gone", "/next", "/next"} {
		r, _, err := readRecord(staging, volID)
		require.NoError(t, err)
		require.NoError(t, r.addTarget(staging, target, func(path string) bool { return mounted[path] }))
	}
	r, found, err := readRecord(staging, volID)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, []string{"/stays", "/next"}, r.Targets)
}

// If the stage record cannot be written, the volume is not connected, because no later call could
// undo the connection.
func TestStagingStopsIfTheRecordCannotBeWritten(t *testing.T) {
	n, f := newFakeNode(t)
	obstacle := filepath.Join(f.staging, recordName+".new")
	require.NoError(t, os.Symlink(filepath.Join(f.staging, "missing", "x"), obstacle))
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.ErrorContains(t, err, "write the stage record")
	assert.Empty(t, f.log)
	_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err, "the obstacle is gone")
	f.log = nil
	require.NoError(t, os.Symlink(filepath.Join(f.staging, "missing", "x"), obstacle))
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, filepath.Join(t.TempDir(), "target")))
	require.ErrorContains(t, err, "write the stage record")
	assert.Empty(t, f.log)
}

// If the record of SPDK's spdk-csi cannot be read, the volume counts as still connected.
func TestDamagedLegacyRecordCountsAsConnected(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"no JSON":     func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"no export":   func(path string) error { return os.WriteFile(path, []byte(`{"targetType":"TCP"}`), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newFakeNode(t)
			require.NoError(t, prepare(filepath.Join(f.staging, legacyRecordName)))
			_, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest())
			require.Error(t, err)
			_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, "/target"))
			require.Error(t, err)
			_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
			require.ErrorIs(t, err, request.ErrLeftBehind)
			assert.Empty(t, f.log, "nothing was done")
		})
	}
}

// If a record cannot be removed, the call fails, because kubelet could not remove the staging
// directory.
func TestUnremovableRecordFailsTheCall(t *testing.T) {
	n, f := newFakeNode(t)
	require.NoError(t, os.MkdirAll(filepath.Join(f.staging, recordName+".new", "x"), 0o700))
	_, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.ErrorContains(t, err, "remove the stage record")
}
