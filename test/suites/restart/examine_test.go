package restart

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (w *testbed) stores() (names []string) {
	w.t.Helper()
	list, err := w.client.BdevLvolGetLvstores(w.t.Context(), spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(w.t, err)
	for _, s := range list {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func (w *testbed) examines() *bool {
	w.t.Helper()
	info, err := w.client.SpdkgateTargetGetInfo(w.t.Context())
	require.NoError(w.t, err)
	return info.ExaminesVolumes
}

// With the configuration saved by target.save.disable_auto_examine, a restarted target loads all
// lvstores, RAIDs and other bdevs on disks, but nothing inside volumes.
func TestSavedConfigurationDisablesAutoExamine(t *testing.T) {
	w := newTestbed(t)
	w.disableAutoExamine = true
	require.True(t, w.start())
	w.serve()
	assert.Equal(t, new(true), w.examines())
	w.populate()
	w.call("bdev_passthru_delete", p{"name": "pt0"}, nil) // a restart would not restore it, because it is on top of a volume
	w.awaitSaved()
	before := w.state()
	// A host could have written the lvstore nested to its volume.
	w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "vm", "size_in_mib": 64}, nil)
	var vm []struct{ Name string }
	w.call("bdev_get_bdevs", p{"name": "lvs0/vm"}, &vm)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": vm[0].Name, "lvs_name": "nested", "cluster_sz": 1 << 20}, nil)
	w.call("spdkgate_config_save", nil, nil)
	assert.Equal(t, []string{"lvs0", "nested"}, w.stores())

	for range 2 { // the second file is saved by a target that examines only listed bdevs
		w.kill()
		require.True(t, w.start(w.saved()...))
		w.fresh()
		assert.Equal(t, new(false), w.examines())
		assert.Equal(t, []string{"lvs0"}, w.stores())
		w.call("spdkgate_config_save", nil, nil)
	}
	w.call("bdev_lvol_delete", p{"name": "lvs0/vm"}, nil)
	assert.Equal(t, before, w.state())

	// A restarted target also loads an lvstore that a call has just created.
	w.call("iscsi_delete_target_node", p{"name": "iqn.2016-06.io.spdk:disk1"}, nil)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk1", "lvs_name": "lvs1"}, nil)
	w.call("bdev_lvol_create", p{"lvs_name": "lvs1", "lvol_name": "v", "size_in_mib": 16}, nil)
	w.call("spdkgate_config_save", nil, nil)
	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, []string{"lvs0", "lvs1"}, w.stores())
	assert.Empty(t, w.status().Missing)
}

// RAIDs with volumes on them are restored.
func TestRAIDsAreRestoredWithoutAutoExamine(t *testing.T) {
	for name, superblock := range map[string]bool{"without superblock": false, "with superblock": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestbed(t)
			w.disableAutoExamine = true
			require.True(t, w.start())
			w.serve()
			if superblock && !w.hasKeys() {
				t.Skip("this release gives AIO bdevs a new UUID at each start, so that it differs from the one in the superblock")
			}
			for _, disk := range []string{"disk0", "disk1"} {
				w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
			}
			w.call("bdev_raid_create", p{"name": "raid", "raid_level": "raid1", "base_bdevs": []string{"disk0", "disk1"}, "superblock": superblock}, nil)
			w.call("bdev_lvol_create_lvstore", p{"bdev_name": "raid", "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
			w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": 4, "thin_provision": true}, nil)
			w.call("spdkgate_config_save", nil, nil)
			before := w.state()
			for range 2 {
				w.kill()
				require.True(t, w.start(w.saved()...))
				w.fresh()
				require.Eventually(t, func() bool { return assert.ObjectsAreEqual(before, w.state()) }, long, 50*time.Millisecond, "SPDK registers a RAID after it answers calls")
				w.call("spdkgate_config_save", nil, nil)
			}
		})
	}
}
