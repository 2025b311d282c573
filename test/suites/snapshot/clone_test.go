package snapshot

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// number reads or writes a number in a block on an exported volume.
func number(t *testing.T, to initiator.Target, at int64, write uint64) uint64 {
	t.Helper()
	d, err := initiator.Connect(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	block := make([]byte, blocks.Size)
	if write > 0 {
		binary.LittleEndian.PutUint64(block, write)
		_, err = d.WriteAt(block, at)
	} else {
		_, err = d.ReadAt(block, at)
	}
	require.NoError(t, err)
	return binary.LittleEndian.Uint64(block)
}

// Every clone contains all data written to its source before the clone was created, even if it
// shares an earlier clone's internal snapshot. From v24.05 on, SPDK counts clusters, and clones
// share a snapshot if the source has not been written to in between.
func TestClonesHaveTheLatestWrites(t *testing.T) {
	w := newEnvironment(newTarget(t))
	source := w.create("pvc-source", "thin")
	written := uint64(0)
	write := func() {
		written++
		number(t, w.publish(source, node), int64(written%2)*mib, written)
		_, err := w.controller.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: source.VolumeId, NodeId: node})
		require.NoError(t, err)
	}
	clone := func(name string) (id string) {
		made, err := w.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: volumeBytes}, VolumeCapabilities: []*csi.VolumeCapability{raw},
			Parameters:          map[string]string{"clearMethod": "unmap-may-expose-deleted-data"}, // for releases before v24.05
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.VolumeId}}},
		})
		require.NoError(t, err)
		id = uuid(made.Volume.VolumeId)
		nqn, address := w.share(id)
		defer w.unshare(nqn)
		at := initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:reader"}
		assert.Equal(t, written, number(t, at, int64(written%2)*mib, 0), name)
		assert.Equal(t, written-1, number(t, at, int64((written+1)%2)*mib, 0), name)
		return id
	}
	parent := func(id string) string {
		list, err := w.rpc.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: &id})
		require.NoError(t, err)
		require.NotNil(t, list[0].DriverSpecific.Lvol.BaseSnapshot)
		return *list[0].DriverSpecific.Lvol.BaseSnapshot
	}
	bases, shared := map[string]bool{}, slices.Contains(w.kinds(), "clone")
	const times = 8
	for i := range times {
		write()
		first, second := clone(fmt.Sprint("pvc-", i, "-a")), clone(fmt.Sprint("pvc-", i, "-b"))
		assert.Equal(t, shared, parent(first) == parent(second), "nothing was written in between")
		bases[parent(first)] = true
	}
	assert.Len(t, bases, times, "the source was written in between")
}
