package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// A volume that has been staged for writing is not formatted again, although its publish context
// still permits formatting. The publish context does not change while the volume is attached.
func TestStagedVolumeIsNotFormattedAgain(t *testing.T) {
	reader := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, false)
	for _, c := range []struct {
		name  string
		first *csi.VolumeCapability
		fail  string
		again bool // whether the second staging may format
	}{
		{"mounted", writer, "", false},
		{"raw block, then with a file system", block, "", false},
		{"read-only", reader, "", true},
		{"never connected", writer, "connect", true},
		{"mkfs interrupted", writer, "mount", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, f := newFakeNode(t)
			if c.fail != "" {
				f.fail[c.fail] = mount.ErrUnreadable
			}
			_, err := n.NodeStageVolume(t.Context(), f.stageRequest(c.first))
			require.Equal(t, c.fail != "", err != nil, "%v", err)
			clear(f.fail)
			_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
			require.NoError(t, err)
			_, err = f.node().NodeStageVolume(t.Context(), f.stageRequest(writer)) // another process, perhaps after a reboot
			require.NoError(t, err)
			assert.Equal(t, c.again, f.stage.MayFormat)
			assert.Equal(t, c.again, f.stage.MayFinish)
		})
	}
}

// If the marks of used volumes cannot be read, the volume is left unchanged. If a mark cannot be
// written, the staging is undone.
func TestUnusableStateDirectoryFailsStaging(t *testing.T) {
	n, f := newFakeNode(t)
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "used"), nil, 0o600)) // a file instead of a directory
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.ErrorContains(t, err, "whether volume "+volID+" was used")
	assert.Empty(t, f.log)

	require.NoError(t, os.Remove(filepath.Join(f.state, "used")))
	require.NoError(t, os.Symlink("/nonexistent/directory", filepath.Join(f.state, "used")))
	_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.ErrorContains(t, err, "record that volume")
	assert.Empty(t, f.mounts)
	assert.Empty(t, f.connected)
	assert.False(t, f.hasRecord())
}

func TestOldestUsedVolumeMarksAreRemoved(t *testing.T) {
	u := usedVolumes{filepath.Join(t.TempDir(), "used")}
	old := time.Unix(1_000_000, 0)
	for i := range 20 {
		name := fmt.Sprintf("t0:%02d", i)
		require.NoError(t, u.add(name))
		require.NoError(t, os.Chtimes(u.path(name), old, old.Add(time.Duration(i)*time.Second)))
	}
	require.NoError(t, u.add("t0:00"), "staged again, so its mark is the newest")
	require.NoError(t, u.prune(20))
	entries, err := os.ReadDir(u.dir)
	require.NoError(t, err)
	require.Len(t, entries, 20, "there are not too many")
	require.NoError(t, u.prune(10))
	for i := range 20 {
		has, err := u.has(fmt.Sprintf("t0:%02d", i))
		require.NoError(t, err)
		assert.Equal(t, i == 0 || i >= 12, has, i)
	}
}
