package node

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/hostauth"
)

var update = flag.Bool("update", false, "rewrite the golden file of the record that is written")

// goldenRecord contains every field of the record.
var goldenRecord = stageRecord{
	VolumeID: volID,
	Export: connect.Export{
		Transport: connect.TCP, Address: "192.0.2.1", Port: "4420", More: []connect.Address{{Addr: "fd00::2", Port: "4421"}},
		NQN: "nqn.2026-11.io.spdkgate:" + lvolUUID, NSUUID: lvolUUID, SizeBytes: 1 << 30, Multipath: true,
		Options: map[string]string{"ctrl_loss_tmo": "60"}, Authentication: hostauth.DHCHAP, BothAuthenticate: true,
	},
	Targets: []string{"/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount"},
}

// After an upgrade, a node has volumes that an earlier release staged. Every later release must be
// able to read the records of these volumes. The golden file without a version contains the format
// from before versions existed, and is never rewritten.
func TestAllRecordVersionsAreReadable(t *testing.T) {
	for _, name := range []string{"record-without-version.json", "record-v1.json"} {
		staging := t.TempDir()
		path := filepath.Join("testdata", name)
		if *update && name == "record-v1.json" {
			require.NoError(t, goldenRecord.write(staging))
			text, err := os.ReadFile(filepath.Join(staging, recordName))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text, 0o600))
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(staging, recordName), text, 0o600))
		r, found, err := readRecord(staging, volID)
		require.NoError(t, err, name)
		require.True(t, found)
		want := goldenRecord
		want.Version = r.Version
		assert.Equal(t, want, r, name)

		require.NoError(t, goldenRecord.write(staging))
		written, err := os.ReadFile(filepath.Join(staging, recordName))
		require.NoError(t, err)
		assert.Contains(t, string(written), `{"version":1,`)
		encrypted := goldenRecord
		encrypted.Encryption = encryption{Type: "luks2"}
		require.NoError(t, encrypted.write(staging))
		mapped, err := os.ReadFile(filepath.Join(staging, recordName))
		require.NoError(t, err)
		assert.Contains(t, string(mapped), `{"version":2,`, "a program without encryption must not unstage it")
		if name == "record-v1.json" {
			assert.Equal(t, strings.TrimSpace(string(text)), string(written), "the form of version 1 is fixed: another form needs a new version")
		}
	}
}

// A record of a later release may contain fields that this release must not ignore. Calls for such
// a volume change nothing, and their error codes make kubelet repeat the calls until the later
// release is running again.
func TestNewerRecordIsRejected(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	path := filepath.Join(f.staging, recordName)
	for _, text := range []string{
		`{"version":4,"volumeID":"` + volID + `","export":{"transport":"tcp"}}`,
		`{"version":5,"volume":["another form"],"export":7}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f.log = nil
		mounts, connected := len(f.mounts), len(f.connected)
		for name, call := range map[string]func() error{
			"stage":   func() error { _, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer)); return err },
			"unstage": func() error { _, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest()); return err },
			"publish": func() error {
				_, err := n.NodePublishVolume(t.Context(), f.publishRequest(writer, filepath.Join(t.TempDir(), "target")))
				return err
			},
		} {
			err := call()
			require.ErrorIs(t, err, errNewerRecord, name)
			drivertest.RequireCode(t, codes.Aborted, driver.Status(err), path, "supports versions up to 3", "Nothing was changed", "Run the release that staged the volume")
		}
		assert.Empty(t, f.log)
		assert.Len(t, f.mounts, mounts)
		assert.Len(t, f.connected, connected)
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(kept))
	}
}
