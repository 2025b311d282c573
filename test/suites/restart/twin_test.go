package restart

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tenant writes an lvstore to its volume. The lvstore has the name of another tenant's lvstore,
// and contains a clone with the UUID of the other tenant's volume. The target is restarted with
// both disks, and then without the other tenant's disk, which is added later. For a tenant, the
// name or UUID never refers to the nested object. If the nested lvstore's name is unique, it is
// loaded alongside the other tenant's.
func TestNestedLvstoreIsNotMistakenForAnotherTenants(t *testing.T) {
	for _, c := range []struct {
		name, store string
		examines    bool
	}{
		{"name not examined", "lvs-blue", false},
		{"name examined", "lvs-blue", true},
		{"UUID examined", "inner", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			examines := c.examines
			w := newTestbed(t)
			w.disableAutoExamine, w.acceptLoading, w.tenants = !examines, examines, tenantsYAML
			require.True(t, w.start())
			w.serve()
			w.prepare()
			w.call("spdkgate_config_save", nil, nil)
			w.kill()
			require.True(t, w.start(w.saved()...))
			w.fresh()
			require.Equal(t, new(examines), w.examines())
			var victim, twin, parent string
			w.call("bdev_lvol_create", p{"lvs_name": "lvs-blue", "lvol_name": "secret", "size_in_mib": 16}, &victim)
			w.call("bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": "twin", "size_in_mib": 64}, &twin)
			w.call("bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": "parent", "size_in_mib": 16}, &parent)
			w.call("bdev_lvol_set_read_only", p{"name": parent}, nil)
			w.write(w.caller, twin, w.forge(c.store, forgedLvol{name: "secret", uuid: victim, parent: parent}))
			w.call("spdkgate_config_save", nil, nil)
			red, blue := w.as("red"), w.as("blue")

			// observe reports whether the nested lvstore is loaded, and whether the nested clone
			// has the UUID.
			observe := func(when string) (store, volume bool) {
				w.fresh()
				time.Sleep(3 * time.Second) // tenants' lvstores are read every 2 s
				var stores []struct {
					Name string
					Base string `json:"base_bdev"`
				}
				w.call("bdev_lvol_get_lvstores", nil, &stores)
				var bdevs []struct {
					Name     string
					Aliases  []string
					Specific struct {
						Lvol struct {
							Base string `json:"base_bdev"`
						}
					} `json:"driver_specific"`
				}
				w.call("bdev_get_bdevs", nil, &bdevs)
				var loaded, seen bool
				for _, s := range stores {
					store = store || s.Name == c.store && s.Base == twin
					loaded = loaded || s.Name == "lvs-blue" && s.Base == "disk1"
				}
				for _, b := range bdevs {
					volume = volume || b.Name == victim && b.Specific.Lvol.Base == twin
					seen = seen || b.Name == victim && b.Specific.Lvol.Base == "disk1"
				}
				t.Logf("%s: lvstores %v, the nested lvstore is loaded: %t, the nested clone has the UUID: %t, blue's volume has it: %t", when, stores, store, volume, seen)
				var listed []struct{ Name string }
				require.NoError(t, blue.Call(t.Context(), "bdev_get_bdevs", nil, &listed))
				assert.Equal(t, seen, len(listed) == 1, "blue sees its volume only")
				require.NoError(t, red.Call(t.Context(), "bdev_get_bdevs", nil, &listed))
				assert.Len(t, listed, 2, "red sees its volumes only")
				assert.Error(t, red.Call(t.Context(), "bdev_lvol_set_read_only", p{"name": victim}, nil))
				err := blue.Call(t.Context(), "bdev_lvol_create", p{"lvs_name": "lvs-blue", "lvol_name": "more", "size_in_mib": 1}, nil)
				if loaded {
					require.NoError(t, err)
					require.NoError(t, blue.Call(t.Context(), "bdev_lvol_delete", p{"name": "lvs-blue/more"}, nil))
				} else {
					assert.Error(t, err, "nothing is placed inside red's volume")
				}
				return store, volume
			}
			none := func(store, volume bool) {
				if !examines {
					assert.False(t, store || volume)
				}
			}
			w.kill()
			require.True(t, w.start(w.saved()...))
			none(observe("after a restart"))

			w.kill()
			require.NoError(t, os.Rename(w.at("disk1"), w.at("away")))
			require.True(t, w.start(w.saved("--json-ignore-init-errors")...))
			none(observe("without its disk"))
			require.NoError(t, os.Rename(w.at("away"), w.at("disk1")))
			var bdevs []struct{ Name string }
			if w.caller.Call(t.Context(), "bdev_get_bdevs", p{"name": "disk1"}, &bdevs) != nil {
				w.call("bdev_aio_create", p{"filename": w.at("disk1"), "name": "disk1", "block_size": 4096}, nil)
			}
			none(observe("when its disk comes later"))
		})
	}
}
