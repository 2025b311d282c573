package restart

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
)

// A volume and its snapshot are deleted concurrently through CSI. Afterwards, the volume, the
// snapshot and their clusters are gone, and a restart of the target does not bring them back.
func TestVolumeAndSnapshotAreDeletedConcurrently(t *testing.T) {
	rounds := 160
	if os.Getenv("SPDK_TGT") == "" {
		rounds = 10
	}
	d := newDriverTestbed(t, export.TCP)
	before := d.everything()
	for round := range rounds {
		v, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: volumeBytes}, Parameters: map[string]string{"thin": "false"},
			VolumeCapabilities: []*csi.VolumeCapability{capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)},
		})
		require.NoError(t, err)
		d.id = v.GetVolume().GetVolumeId()
		d.snapshotTaken()
		var both sync.WaitGroup
		for _, remove := range []func() error{
			func() error {
				_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: d.id})
				return err
			},
			func() error {
				_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: d.snapshot})
				return err
			},
		} {
			both.Go(func() {
				// Kubernetes also retries
				assert.Eventually(t, func() bool { return remove() == nil }, long, 10*time.Millisecond)
			})
		}
		both.Wait()
		require.Equal(t, before, d.everything(), "round %d", round)
	}
	d.kill()
	d.again()
	assert.Equal(t, before, d.everything(), "after a restart")
}
