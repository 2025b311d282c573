package tenancy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// If a look-up of an owner or size fails, the call is not executed or, if it has already been
// executed, its result is not returned. The quota is unchanged.
func TestCallsWithFailedLookupsAreRefused(t *testing.T) {
	const nqn = "nqn.2016-06.io.spdk:red-two"
	for name, c := range map[string]struct {
		method string
		params func(red things) p
	}{
		"all bdevs":              {"bdev_get_bdevs", func(_ things) p { return nil }},
		"one bdev":               {"bdev_get_bdevs", func(red things) p { return p{"name": red.volume} }},
		"all volumes":            {"bdev_lvol_get_lvols", func(_ things) p { return nil }},
		"volumes of one lvstore": {"bdev_lvol_get_lvols", func(red things) p { return p{"lvs_uuid": red.lvsUUID} }},
		"all lvstores":           {"bdev_lvol_get_lvstores", func(_ things) p { return nil }},
		"all subsystems":         {"nvmf_get_subsystems", func(_ things) p { return nil }},
		"all iSCSI targets":      {"iscsi_get_target_nodes", func(_ things) p { return nil }},
		"statistics":             {"bdev_get_iostat", func(red things) p { return p{"name": red.volume} }},
		"create":                 {"bdev_lvol_create", func(red things) p { return p{"lvol_name": "x", "size_in_mib": 4, "lvs_name": red.lvs} }},
		"create by UUID":         {"bdev_lvol_create", func(red things) p { return p{"lvol_name": "x", "size_in_mib": 4, "uuid": red.lvsUUID} }},
		"snapshot":               {"bdev_lvol_snapshot", func(red things) p { return p{"lvol_name": red.volume, "snapshot_name": "x"} }},
		"clone":                  {"bdev_lvol_clone", func(red things) p { return p{"snapshot_name": red.snapshot, "clone_name": "x"} }},
		"resize":                 {"bdev_lvol_resize", func(red things) p { return p{"name": red.volume, "size_in_mib": 12} }},
		"inflate":                {"bdev_lvol_inflate", func(red things) p { return p{"name": red.volume} }},
		"delete":                 {"bdev_lvol_delete", func(red things) p { return p{"name": red.volume} }},
		"QoS":                    {"bdev_set_qos_limit", func(red things) p { return p{"name": red.mallocUUID, "rw_ios_per_sec": 1000} }},
		"create a subsystem":     {"nvmf_create_subsystem", func(_ things) p { return p{"nqn": nqn} }},
		"delete a subsystem":     {"nvmf_delete_subsystem", func(red things) p { return p{"nqn": red.nqn} }},
		"add a namespace":        {"nvmf_subsystem_add_ns", func(red things) p { return p{"nqn": red.nqn, "namespace": p{"bdev_name": red.snapshot}} }},
		"delete an iSCSI target": {"iscsi_delete_target_node", func(red things) p { return p{"name": red.iqn} }},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				w := newWorld(t, "v26.05", func(red *Tenant) { red.Quota = Quota{Bytes: 64 * mib, Volumes: 8, Subsystems: 4} })
				red, _ := w.settle()
				w.fail = at
				sent := len(w.sent)
				_, err := w.call("alice", c.method, c.params(red))
				if !w.lost {
					require.NoError(t, err)
					return
				}
				require.Error(t, err, "query %d fails, %s", at, w.asks[len(w.asks)-1].method)
				if m, _ := rpcschema.Default().Method(c.method); m.Mutates {
					assert.Len(t, w.sent, sent, "nothing was sent")
				}
				w.fail, w.lost = 0, false
				_, err = w.call("alice", c.method, c.params(red))
				require.NoError(t, err, "a failed lookup is repeated")
			}
		})
	}
}

// The proxy caches a volume's lvstore for 30 to 90 seconds.
func TestVolumeCacheExpires(t *testing.T) {
	pass := atTime(t)
	v := new(volumes)
	v.learn([][2]string{{"a", "lvs-a"}}, now())
	assert.Equal(t, "lvs-a", v.of("a"))
	assert.Empty(t, v.of("b"))
	pass(volumesKeep)
	assert.Equal(t, "lvs-a", v.of("a"))
	v.learn([][2]string{{"b", "lvs-b"}}, now())
	assert.Equal(t, "lvs-a", v.of("a"), "half a minute later")
	assert.Equal(t, "lvs-b", v.of("b"))
	pass(volumesKeep)
	assert.Empty(t, v.of("a"), "a minute later")
	assert.Equal(t, "lvs-b", v.of("b"))
	pass(volumesKeep)
	assert.Empty(t, v.of("b"), "the volume was not seen again")
	v.learn([][2]string{{"c", "lvs-c"}}, now())
	assert.Empty(t, v.of("b"))
	assert.Equal(t, "lvs-c", v.of("c"))
	for i := range 2 * (maxVolumes + 2) {
		v.learn([][2]string{{fmt.Sprint(i), "lvs"}}, now())
	}
	assert.LessOrEqual(t, len(v.recent)+len(v.older), 2*(maxVolumes+1), "the cache is bounded")
	v.forget()
	assert.Empty(t, v.of("c"))
	v.learn([][2]string{{"c", "lvs-c"}}, now())
	assert.Empty(t, v.of("c"), "the query was sent before the change")
}

// An object created by a tenant's call belongs to the tenant, so the proxy returns the response
// without a look-up.
func TestCreatedObjectsBelongToTheTenant(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	w.must("alice", "bdev_lvol_get_lvstores", nil) // the list of lvstores is now cached
	for _, c := range []struct {
		method string
		params p
	}{
		{"bdev_lvol_create", p{"lvol_name": "x", "size_in_mib": 4, "lvs_name": red.lvs}},
		{"bdev_lvol_snapshot", p{"lvol_name": red.lvs + "/vol", "snapshot_name": "y"}},
		{"bdev_lvol_clone", p{"snapshot_name": red.lvs + "/y", "clone_name": "z"}},
	} {
		var made string
		assert.Zero(t, w.asked(func() { made = text(t, w.must("alice", c.method, c.params)) }), c.method)
		assert.Len(t, made, 36, c.method)
	}
}

// After a call by any user that may delete a volume, or load another volume with the same UUID, no
// owner is cached. Otherwise, the next call that reads could read the other volume.
func TestCallsThatMayMoveUUIDsEmptyTheVolumeCache(t *testing.T) {
	w := newWorld(t, "v26.05")
	cache := w.tenancy.volumes
	for method, empty := range map[string]bool{
		"bdev_lvol_delete": true, "spdkgate_lvol_delete": true, "bdev_lvol_delete_lvstore": true, "bdev_aio_delete": true,
		"bdev_lvol_snapshot": true, "spdkgate_lvol_snapshot": true, "bdev_lvol_clone": true, "bdev_lvol_clone_bdev": true, "bdev_lvol_decouple_parent": true,
		"bdev_lvol_rename": true, "bdev_examine": true, "bdev_aio_create": true, "bdev_nvme_attach_controller": true, "bdev_raid_create": true,
		"bdev_lvol_create": false, "bdev_lvol_resize": false, "bdev_get_bdevs": false, "nvmf_create_subsystem": false,
	} {
		cache.learn([][2]string{{"a", "lvs-a"}}, now())
		require.Equal(t, "lvs-a", cache.of("a"), method)
		w.tenancy.Executed(w.method(method))
		assert.Equal(t, empty, cache.of("a") == "", method)
	}
}
