package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

const volumeNQN = "nqn.2020-04.io.spdk.csi:uuid:"

// goneWorld creates a target with tenants who name their subsystems after volumes.
func goneWorld(t *testing.T) *world {
	w := newWorld(t, "v26.05")
	red, blue := redTenant(), blueTenant()
	red.VolumeNQN, red.Quota = volumeNQN, Quota{Subsystems: 100, Hosts: 100, Listeners: 100}
	blue.VolumeNQN, blue.Quota = red.VolumeNQN, red.Quota
	var err error
	w.tenancy, err = New([]Tenant{red, blue}, map[string]string{"alice": "red", "bob": "blue"}, rpcschema.Default(), nil)
	require.NoError(t, err)
	return w
}

// export creates a volume in an lvstore and, as this user, a subsystem for it with one host.
func (w *world) export(user, lvs, name string) (volume, nqn string) {
	volume = text(w.t, w.must("", "bdev_lvol_create", p{"lvol_name": name, "size_in_mib": 4, "lvs_name": lvs, "thin_provision": true}))
	nqn = volumeNQN + volume
	w.must(user, "nvmf_create_subsystem", p{"nqn": nqn})
	w.must(user, "nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": volume}})
	w.must(user, "nvmf_subsystem_add_host", p{"nqn": nqn, "host": redHost})
	return volume, nqn
}

// lose deletes a volume without the proxy's knowledge.
func (w *world) lose(volume string) {
	_, err := w.raw(w.t.Context(), "bdev_lvol_delete", p{"name": volume})
	require.NoError(w.t, err)
	w.tenancy.volumes.forget()
}

// seen returns the subsystems that the user sees.
func (w *world) seen(user string) string {
	return string(w.must(user, "nvmf_get_subsystems", nil))
}

// assertHidden asserts that a subsystem does not exist for a user.
func (w *world) assertHidden(user, nqn string) {
	w.t.Helper()
	assert.NotContains(w.t, w.seen(user), nqn)
	before := w.must("", "nvmf_get_subsystems", nil)
	ghost := volumeNQN + "99999999-abcd-4333-8444-abcdefabcdef"
	for _, method := range []string{"nvmf_get_subsystems", "nvmf_delete_subsystem", "nvmf_subsystem_get_controllers"} {
		result, err := w.call(user, method, p{"nqn": nqn})
		require.Error(w.t, err, method)
		none, noneErr := w.call(user, method, p{"nqn": ghost})
		assert.Equal(w.t, outcome(none, noneErr, ghost), outcome(result, err, nqn), method)
	}
	assert.Equal(w.t, before, w.must("", "nvmf_get_subsystems", nil))
}

// After a volume is gone, the tenant can see and delete the volume's subsystem, but not use it
// otherwise. A volume that is only temporarily missing may return and belong to another tenant.
func TestSubsystemOfAMissingVolumeCanOnlyBeSeenAndDeleted(t *testing.T) {
	for _, count := range []int{1, asksBeforeListing + 2} {
		w := goneWorld(t)
		w.settle()
		var nqns []string
		for i := range count {
			volume, nqn := w.export("alice", "lvs-red", string(rune('a'+i)))
			w.lose(volume)
			nqns = append(nqns, nqn)
		}
		for _, nqn := range nqns {
			assert.Contains(t, w.seen("alice"), nqn)
			w.assertHidden("bob", nqn)
			before := w.must("", "nvmf_get_subsystems", p{"nqn": nqn})
			for method, params := range map[string]p{
				"nvmf_create_subsystem":         {"nqn": nqn},
				"nvmf_subsystem_add_host":       {"nqn": nqn, "host": hostOf(7)},
				"nvmf_subsystem_add_ns":         {"nqn": nqn, "namespace": p{"bdev_name": "lvs-red/vol-snap"}},
				"nvmf_subsystem_add_listener":   {"nqn": nqn, "listen_address": redAddress},
				"nvmf_subsystem_remove_host":    {"nqn": nqn, "host": redHost},
				"nvmf_subsystem_allow_any_host": {"nqn": nqn, "allow_any_host": false},
			} {
				_, err := w.call("alice", method, params)
				require.Error(t, err, method)
			}
			assert.Equal(t, before, w.must("", "nvmf_get_subsystems", p{"nqn": nqn}))
			w.must("alice", "nvmf_get_subsystems", p{"nqn": nqn})
			w.must("alice", "nvmf_subsystem_get_controllers", p{"nqn": nqn})
			w.must("alice", "nvmf_delete_subsystem", p{"nqn": nqn})
			assert.NotContains(t, w.seen(""), nqn)
		}
	}
}

// After a volume is gone, its subsystem stays hidden from tenants that did not create or change it.
// If several tenants changed it, it is hidden from all of them.
func TestSubsystemOfAMissingVolumeStaysHiddenFromOtherTenants(t *testing.T) {
	w := goneWorld(t)
	w.settle()
	ofBlue, blueNQN := w.export("bob", "lvs-blue", "x")
	ofAdmin, adminNQN := w.export("", "lvs-red", "x")
	w.lose(ofBlue)
	w.lose(ofAdmin)
	w.assertHidden("alice", blueNQN)
	w.assertHidden("alice", adminNQN)
	w.assertHidden("bob", adminNQN)

	// An administrator gives red's lvstore to blue, which then owns the volumes and exports in it.
	kept, keptNQN := w.export("alice", "lvs-red", "kept")
	used, usedNQN := w.export("alice", "lvs-red", "used")
	w.must("", "bdev_lvol_rename_lvstore", p{"old_name": "lvs-blue", "new_name": "lvs-away"})
	w.must("", "bdev_lvol_rename_lvstore", p{"old_name": "lvs-red", "new_name": "lvs-blue"})
	w.tenancy.stores.forget()
	w.assertHidden("alice", keptNQN)
	w.assertHidden("alice", usedNQN)
	w.must("bob", "nvmf_subsystem_add_host", p{"nqn": usedNQN, "host": hostOf(3)})
	w.lose(used)
	w.assertHidden("alice", usedNQN)
	w.assertHidden("bob", usedNQN)

	// Only a subsystem that blue never changed belongs to red again, and only to be deleted.
	w.lose(kept)
	_, err := w.call("alice", "nvmf_subsystem_add_host", p{"nqn": keptNQN, "host": hostOf(3)})
	require.Error(t, err)
	w.must("alice", "nvmf_delete_subsystem", p{"nqn": keptNQN})
}
