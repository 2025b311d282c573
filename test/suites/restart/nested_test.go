package restart

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// driver returns the controller of a driver that may use all lvstores on the target.
func (w *testbed) driver() *controller.Controller {
	w.t.Helper()
	return w.controller(p{"name": "t0", "rpcURL": w.url, "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "targetPort": "4420"})
}

// controller returns the controller of a driver with one target, whose entry in config.json is
// node.
func (w *testbed) controller(node p) *controller.Controller {
	w.t.Helper()
	cfg, err := json.Marshal(p{"nodes": []p{node}})
	require.NoError(w.t, err)
	parsed, err := config.Parse(cfg)
	require.NoError(w.t, err)
	secret, err := json.Marshal(p{"rpcTokens": []p{{"name": "t0", "username": "admin", "password": password}}})
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.at("secret.json"), secret, 0o600))
	c, err := controller.New(parsed, w.at("secret.json"), slog.New(slog.DiscardHandler))
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// examination returns the doctor command's findings on a driver's only target: the objects by kind.
func (w *testbed) examination(c *controller.Controller) map[doctor.Kind]string {
	w.t.Helper()
	targets, err := c.DoctorTargets()
	require.NoError(w.t, err)
	found, err := doctor.Examination{Targets: targets, Hosts: controller.HostOf, Timeout: long}.Run(w.t.Context())
	require.NoError(w.t, err)
	objects := map[doctor.Kind]string{}
	for _, f := range found {
		objects[f.Kind] += f.Object + ": " + f.Problem + "\n"
	}
	return objects
}

// A host writes an lvstore into its raw block volume. An examining target loads this lvstore from a
// snapshot and, after a restart, from the volume. A driver without configured lvstores neither
// creates nor lists anything in that lvstore, even if no other lvstore has space. The driver's
// doctor command reports the lvstore.
func TestDriverPlacesNothingInsideAVolume(t *testing.T) {
	w := newTestbed(t)
	w.acceptLoading = true
	require.True(t, w.start())
	w.serve()
	w.call("bdev_aio_create", p{"filename": w.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
	w.call("nvmf_create_transport", p{"trtype": "TCP"}, nil)
	ctx, c := t.Context(), w.driver()
	raw := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	create := func(name string, mib int64, thin bool) (id string, err error) {
		made, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
			VolumeCapabilities: []*csi.VolumeCapability{raw}, Parameters: map[string]string{"thin": fmt.Sprint(thin)}})
		return made.GetVolume().GetVolumeId(), err
	}
	vm, err := create("pvc-vm", 64, true)
	require.NoError(t, err)
	_, uuid, _ := strings.Cut(vm, ":")
	w.write(w.caller, uuid, w.forge("lvs1"))
	snapshot, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snap", SourceVolumeId: vm})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(w.stores()) == 2 }, long, 50*time.Millisecond, "SPDK examines bdevs after it has responded")
	var stores []struct {
		Free uint64 `json:"free_clusters"`
	}
	w.call("bdev_lvol_get_lvstores", p{"lvs_name": "lvs0"}, &stores)
	// some of the space is reserved for writes to thin volumes
	full, err := create("pvc-full", int64(stores[0].Free)-60, false)
	require.NoError(t, err)
	w.awaitSaved()

	var small []string
	for _, when := range []string{"from the snapshot", "from the volume"} {
		var loaded []spdkrpc.LvolStore
		w.call("bdev_lvol_get_lvstores", p{"lvs_name": "lvs1"}, &loaded)
		assert.Equal(t, when == "from the volume", loaded[0].BaseBdev == uuid, when)
		assert.Greater(t, loaded[0].FreeClusters, uint64(32), "it has room")
		_, err = create("pvc-victim", 32, false)
		assert.Error(t, err, when)
		id, err := create(fmt.Sprint("pvc-small", len(small)), 4, true)
		require.NoError(t, err, when)
		small = append(small, id)
		list, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{})
		require.NoError(t, err)
		assert.Len(t, list.Entries, 2+len(small), when)
		var lvols []struct{ Lvs struct{ Name string } }
		w.call("bdev_lvol_get_lvols", nil, &lvols)
		for _, l := range lvols {
			assert.Equal(t, "lvs0", l.Lvs.Name, when)
		}
		found := w.examination(c)
		assert.Contains(t, found[doctor.Nested], "lvstore lvs1 ", when)
		_, err = c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot.Snapshot.SnapshotId})
		require.NoError(t, err, "it may be deleted repeatedly")
		w.awaitSaved()
		w.killed()
		require.Eventually(t, func() bool { return len(w.stores()) == 2 }, long, 50*time.Millisecond)
	}
	for _, id := range append(small, full, vm) {
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		require.NoError(t, err)
	}
	assert.True(t, w.allFree("lvs0"))
}
