package restart

import (
	"bytes"
	"crypto/rand"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A rawBlockTrial is a cluster whose pods write arbitrary bytes to raw block volumes in lvs0.
// Another user owns a volume in lvs1 and its snapshot.
type rawBlockTrial struct {
	*testbed
	*controller.Controller
	victim, snapshot string
	secret           []byte
}

var rawBlock = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

func newRawBlockTrial(t *testing.T) *rawBlockTrial {
	w := newTestbedOrSimulated(t)
	w.disableAutoExamine = true
	t.Setenv("STATE_DIRECTORY", w.dir) // for the freeze journal
	require.True(t, w.start())
	w.serve()
	for disk, store := range map[string]string{"disk0": "lvs0", "disk1": "lvs1"} {
		w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
		w.call("bdev_lvol_create_lvstore", p{"bdev_name": disk, "lvs_name": store, "cluster_sz": 1 << 20}, nil)
	}
	w.call("nvmf_create_transport", p{"trtype": "TCP"}, nil)
	w.call("spdkgate_config_save", nil, nil)
	w.killed()
	require.Equal(t, new(false), w.examines())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	h := &rawBlockTrial{testbed: w, secret: make([]byte, 8<<20)}
	_, _ = rand.Read(h.secret)
	w.call("bdev_lvol_create", p{"lvs_name": "lvs1", "lvol_name": "secret", "size_in_mib": 8, "thin_provision": true}, &h.victim)
	if w.simulated == nil {
		w.write(w.caller, h.victim, h.secret)
	}
	w.call("bdev_lvol_snapshot", p{"lvol_name": h.victim, "snapshot_name": "snap"}, &h.snapshot)
	h.Controller = w.controller(p{"name": "t0", "rpcURL": w.url, "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "targetPort": w.port, "lvstores": []string{"lvs0"}})
	return h
}

// create creates a raw block volume, and returns its id and its UUID.
func (h *rawBlockTrial) create(name string, from *csi.VolumeContentSource) (id, uuid string) {
	h.t.Helper()
	v, err := h.CreateVolume(h.t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}, VolumeCapabilities: []*csi.VolumeCapability{rawBlock}, VolumeContentSource: from, Parameters: parameters,
	})
	require.NoError(h.t, err)
	_, uuid, _ = strings.Cut(v.GetVolume().GetVolumeId(), ":")
	return v.GetVolume().GetVolumeId(), uuid
}

// whilePublished calls the function do while a node is allowed to use a volume.
func (h *rawBlockTrial) whilePublished(id string, do func()) {
	h.t.Helper()
	_, err := h.ControllerPublishVolume(h.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "a", VolumeCapability: rawBlock})
	require.NoError(h.t, err)
	do()
	_, err = h.ControllerUnpublishVolume(h.t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "a"})
	require.NoError(h.t, err)
}

// payload writes one of the contents to a published volume, as a pod would.
func (h *rawBlockTrial) payload(uuid string, forged contents, name, decoy string) {
	h.t.Helper()
	if h.simulated != nil {
		stores := map[string]spdktest.WrittenStore{
			"inner": {Name: "inner", Lvols: []spdktest.WrittenLvol{{Name: "loot", UUID: decoy, External: h.snapshot}, {Name: "raided", External: h.victim}}},
			"twin":  {Name: "lvs1", Lvols: []spdktest.WrittenLvol{{Name: "secret", UUID: h.victim, External: h.snapshot}}},
		}
		if name == "RAID" {
			require.NoError(h.t, h.simulated.WriteRAID(uuid, "pod-raid"))
		} else {
			require.NoError(h.t, h.simulated.WriteStore(uuid, stores[name]))
		}
		return
	}
	require.NoError(h.t, os.WriteFile(h.at("data"), forged.of(h.testbed, uuid, h.victim, h.snapshot, decoy)[name], 0o600))
	nqn := volumeNQN + uuid
	h.call("nvmf_subsystem_add_host", p{"nqn": nqn, "host": hostNQN}, nil)
	h.copyData(nqn, "--if="+h.at("data"), "--ob=Nn1", "--bs=1048576")
	h.call("nvmf_subsystem_remove_host", p{"nqn": nqn, "host": hostNQN}, nil)
}

// check fails the test if the target has loaded anything from a volume, or if the other user's
// volume has changed.
func (h *rawBlockTrial) check(when string) {
	h.t.Helper()
	time.Sleep(time.Second) // SPDK examines bdevs after it has responded
	assert.Equal(h.t, []string{"lvs0", "lvs1"}, h.stores(), when)
	var all []spdkrpc.BdevInfo
	h.testbed.call("bdev_get_bdevs", nil, &all)
	found := map[string]string{}
	for _, b := range all {
		if l := b.DriverSpecific.Lvol; l != nil && l.BaseBdev != nil {
			found[b.Name] = *l.BaseBdev
			assert.Contains(h.t, []string{"disk0", "disk1"}, *l.BaseBdev, when)
		} else {
			assert.Contains(h.t, []string{"disk0", "disk1"}, b.Name, "%s: it is loaded", when)
		}
		assert.False(h.t, b.Claimed && (b.Name == h.victim || b.Name == h.snapshot), "%s: %s is claimed", when, b.Name)
	}
	assert.Equal(h.t, "disk1", found[h.victim], when)
	assert.Equal(h.t, "disk1", found[h.snapshot], when)
	maps.DeleteFunc(found, func(_, disk string) bool { return disk != "disk1" })
	assert.Len(h.t, found, 2, when)
	if h.simulated == nil { // it stores no data
		assert.True(h.t, bytes.Equal(h.secret, h.read(h.caller, volumeNQN+h.victim, h.victim)), when)
	}
}

// A pod writes an lvstore, a RAID superblock or a partition table to its raw block volume. The
// target loads none of them from the volume, its snapshot or a volume restored from that snapshot,
// even after a restart. Other users' volumes remain unchanged, and the deletions leave nothing
// behind.
func TestRawBlockVolumeContentIsNotLoaded(t *testing.T) {
	h := newRawBlockTrial(t)
	names, forged := []string{"inner", "twin", "RAID"}, contents{}
	if h.simulated == nil {
		forged, names = h.forgeAll("lvs1", "pod-raid"), append(names, "GPT", "FTL")
	}
	decoyID, decoy := h.create("pvc-decoy", nil)
	for _, name := range names {
		id, uuid := h.create("pvc-"+name, nil)
		var snapshot *csi.CreateSnapshotResponse
		h.whilePublished(id, func() {
			h.payload(uuid, forged, name, decoy)
			h.check(name + " was written")
			var err error
			snapshot, err = h.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snap-" + name, SourceVolumeId: id})
			require.NoError(t, err)
			h.check(name + ": snapshot")
		})
		source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot.Snapshot.SnapshotId}}}
		restored, _ := h.create("pvc-restored-"+name, source)
		h.whilePublished(restored, func() { h.check(name + ": restored") })
		h.awaitSaved()
		h.killed()
		require.Equal(t, new(false), h.examines())
		h.check(name + ": restart")
		for _, volume := range []string{id, restored} {
			_, err := h.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: volume})
			require.NoError(t, err)
		}
		_, err := h.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.Snapshot.SnapshotId})
		require.NoError(t, err)
		h.check(name + ": deletions")
	}
	_, err := h.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: decoyID})
	require.NoError(t, err)
	assert.True(t, h.allFree("lvs0"))
}
