package restart

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Clones of bdevs outside their lvstore are restored after a restart, with the saved configuration
// of a target that does not load lvstores that hosts have written to volumes.
func TestClonesOfExternalBdevsAreRestored(t *testing.T) {
	for _, c := range []struct{ store, other string }{{"disk0", "disk1"}, {"disk1", "disk0"}} {
		t.Run("lvstore on "+c.store, func(t *testing.T) {
			w := newTestbedOrSimulated(t)
			w.disableAutoExamine = true
			require.True(t, w.start())
			w.serve()
			for _, disk := range []string{"disk0", "disk1"} {
				// before v24.05, file-backed bdevs get a new UUID at each start
				if disk == c.other && !w.hasKeys() {
					w.call("bdev_malloc_create", p{"name": disk, "num_blocks": 1 << 12, "block_size": 4096, "uuid": anyVictim}, nil)
					continue
				}
				w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
			}
			w.call("bdev_lvol_create_lvstore", p{"bdev_name": c.store, "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
			w.call("bdev_lvol_clone_bdev", p{"bdev": c.other, "lvs_name": "lvs0", "clone_name": "c"}, nil)
			w.call("spdkgate_config_save", nil, nil)
			w.killed()
			require.Equal(t, new(false), w.examines())
			var found []any
			assert.NoError(t, w.caller.Call(t.Context(), "bdev_get_bdevs", p{"name": "lvs0/c"}, &found))
		})
	}
}
