package restart

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// raids returns the names of all RAIDs that are online.
func (w *testbed) raids() []string {
	names := []string{}
	var list []struct{ Name string }
	w.call("bdev_raid_get_bdevs", p{"category": "online"}, &list)
	for _, r := range list {
		names = append(names, r.Name)
	}
	return names
}

// The proxy predicts which RAIDs a restart will not restore.
func TestUnrestorableRAIDsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		superblock, memory, remove bool
	}{
		"superblock":                       {superblock: true},
		"superblock in memory":             {superblock: true, memory: true},
		"superblock and a disk removed":    {superblock: true, remove: true},
		"without superblock":               {},
		"neither superblock nor all disks": {remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestbed(t)
			require.True(t, w.start())
			w.serve()
			for _, disk := range []string{"disk0", "disk1"} {
				if c.memory {
					w.call("bdev_malloc_create", p{"name": disk, "block_size": 4096, "num_blocks": 16384}, nil)
				} else {
					w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
				}
			}
			w.call("bdev_raid_create", p{"name": "raid", "raid_level": "raid1", "base_bdevs": []string{"disk0", "disk1"}, "superblock": c.superblock}, nil)
			online := func() bool { return len(w.raids()) == 1 }
			require.Eventually(t, online, long, 50*time.Millisecond)
			if c.remove {
				w.call("bdev_raid_remove_base_bdev", p{"name": "disk1"}, nil)
			}
			var saved spdkrpc.ProxySavedConfig
			w.call("spdkgate_config_save", nil, &saved)
			lost := false
			for _, r := range saved.NotRestorable {
				assert.Equal(t, "raid", r.RAID)
				t.Log(r.Disk, r.Reason)
				lost = true
			}
			w.kill()
			require.True(t, w.start(w.saved()...))
			w.fresh()
			if lost {
				time.Sleep(2 * time.Second) // a RAID that SPDK restores is online by then
				assert.Empty(t, w.raids())
			} else {
				require.Eventually(t, online, long, 50*time.Millisecond)
			}
		})
	}
}
