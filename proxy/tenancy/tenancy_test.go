package tenancy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// All calls that a tenant's CSI controller makes succeed on the tenant's objects.
func TestCallsOnOwnObjectsSucceed(t *testing.T) {
	for _, release := range []string{"v26.05", "v24.01", "v23.01"} {
		t.Run(release, func(t *testing.T) {
			w := newWorld(t, release)
			red, _ := w.settle()
			volume := text(t, w.must("alice", "bdev_lvol_create", p{"lvol_name": "new", "size_in_mib": 4, "lvs_name": "lvs-red"}))
			w.must("alice", "bdev_lvol_create", p{"lvol_name": "new2", "size_in_mib": 4, "uuid": strings.ToUpper(red.lvsUUID)})
			assert.Contains(t, string(w.must("alice", "bdev_get_bdevs", p{"name": volume})), `"lvs-red/new"`)
			assert.Contains(t, string(w.must("alice", "bdev_get_bdevs", p{"name": "lvs-red/new"})), volume)
			w.must("alice", "bdev_get_bdevs", p{"name": red.mallocUUID})
			w.must("alice", "bdev_lvol_resize", p{"name": volume, "size_in_mib": 8})
			w.must("alice", "bdev_lvol_rename", p{"old_name": volume, "new_name": "newer"})
			snapshot := text(t, w.must("alice", "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/newer", "snapshot_name": "s"}))
			clone := text(t, w.must("alice", "bdev_lvol_clone", p{"snapshot_name": snapshot, "clone_name": "c"}))
			const nqn = "nqn.2016-06.io.spdk:red-two"
			w.must("alice", "nvmf_create_subsystem", p{"nqn": nqn, "serial_number": "S1", "model_number": "M1"})
			w.must("alice", "nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": p{"trtype": "tcp", "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
			w.must("alice", "nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": clone, "uuid": clone, "nguid": strings.ToUpper(strings.ReplaceAll(clone, "-", ""))}})
			w.must("alice", "nvmf_subsystem_add_host", p{"nqn": nqn, "host": redHost})
			listed := string(w.must("alice", "nvmf_get_subsystems", p{"nqn": nqn}))
			for _, want := range []string{clone, redHost, "4420", "S1", "M1"} {
				assert.Contains(t, listed, want)
			}
			w.must("alice", "nvmf_subsystem_remove_host", p{"nqn": nqn, "host": redHost})
			w.must("alice", "nvmf_delete_subsystem", p{"nqn": nqn})
			w.must("alice", "bdev_lvol_delete", p{"name": clone})
			w.must("alice", "iscsi_target_node_add_lun", p{"name": red.iqn, "bdev_name": volume})
			for _, method := range []string{"spdk_get_version", "rpc_get_methods", "nvmf_get_transports", "bdev_wait_for_examine"} {
				w.must("alice", method, nil)
			}
			if w.release.Before(rpcschema.MustRelease("v23.05")) {
				return
			}
			assert.Contains(t, string(w.must("alice", "bdev_lvol_get_lvols", p{"lvs_name": "lvs-red"})), volume)
		})
	}
}

func TestUsersWithoutATenantSeeEverything(t *testing.T) {
	w := newWorld(t, "v26.05")
	_, blue := w.settle()
	assert.Nil(t, w.tenancy.Of("carol"))
	all := string(w.must("carol", "bdev_get_bdevs", nil))
	assert.Contains(t, all, blue.volume)
	assert.Contains(t, all, "BaseB")
}

// Lists contain all of the tenant's objects, and reveal no other objects.
func TestListsContainOnlyOwnObjects(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, blue := w.settle()
	// An administrator has put blue's volume into red's subsystem.
	w.must("", "nvmf_subsystem_add_ns", p{"nqn": red.nqn, "namespace": p{"bdev_name": blue.snapshot}})
	for method, want := range map[string][]string{
		"bdev_get_bdevs":         {red.volume, red.snapshot, red.malloc, red.mallocUUID, "lvs-red/vol", red.lvsUUID, `"base_snapshot":"vol-snap"`, `"base_bdev":""`},
		"bdev_lvol_get_lvstores": {red.lvs, red.lvsUUID, `"base_bdev":""`},
		"bdev_lvol_get_lvols":    {red.volume, "lvs-red/vol", `"name":"vol"`},
		"nvmf_get_subsystems":    {red.nqn, red.volume, redHost},
		"iscsi_get_target_nodes": {red.iqn, red.malloc},
		"scsi_get_devices":       nil,
		"keyring_get_keys":       nil,
		"bdev_raid_get_bdevs":    nil,
	} {
		params := p(nil)
		if method == "bdev_raid_get_bdevs" {
			params = p{"category": "all"}
		}
		result, err := w.call("alice", method, params)
		if spdkrpc.KindOf(err) == spdkrpc.MethodNotFound {
			continue
		}
		require.NoError(t, err, method)
		for _, s := range want {
			assert.Contains(t, string(result), s, method)
		}
		for _, s := range append(blue.secrets(), "BaseR", "BaseB", lostHost, "discovery") {
			assert.NotContains(t, strings.ToLower(string(result)), strings.ToLower(s), method)
		}
		var list []any
		require.NoError(t, json.Unmarshal(result, &list), method)
	}
	namespaces := string(w.must("alice", "nvmf_get_subsystems", p{"nqn": red.nqn}))
	assert.Equal(t, 1, strings.Count(namespaces, `"nsid"`))
}

func TestCallsOnForeignObjectsOrTheWholeTargetAreRefused(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	listen := func(address p) p {
		if address["trtype"] == nil {
			address["trtype"] = "TCP"
		}
		return p{"nqn": red.nqn, "listen_address": address}
	}
	for name, c := range map[string]struct {
		method string
		params p
	}{
		"the whole target":                      {"framework_get_config", p{"name": "bdev"}},
		"statistics of all bdevs":               {"bdev_get_iostat", nil},
		"resetting the statistics of all bdevs": {"bdev_reset_iostat", p{}},
		"a file":                                {"bdev_aio_create", p{"name": "red-x", "filename": "/dev/sda", "block_size": 512}},
		"a file in a nested parameter":          {"nvmf_subsystem_add_ns", p{"nqn": red.nqn, "namespace": p{"bdev_name": red.malloc, "ptpl_file": "/etc/passwd"}}},
		"a name of another tenant":              {"bdev_malloc_create", p{"name": "blue-x", "num_blocks": 8, "block_size": 512}},
		"a name that SPDK chooses":              {"bdev_malloc_create", p{"num_blocks": 8, "block_size": 512}},
		"a UUID":                                {"bdev_malloc_create", p{"name": "red-x", "num_blocks": 8, "block_size": 512, "uuid": "11111111-2222-4333-8444-555555555555"}},
		"an lvstore of another tenant":          {"bdev_lvol_create_lvstore", p{"bdev_name": red.malloc, "lvs_name": "lvs-blue"}},
		"renaming to a name of another tenant":  {"bdev_lvol_rename_lvstore", p{"old_name": "lvs-red", "new_name": "lvs-blue"}},
		"a subsystem of another tenant":         {"nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:blue-x"}},
		"another NVMe-oF target":                {"nvmf_get_subsystems", p{"tgt_name": "other"}},
		"a host of another tenant":              {"nvmf_subsystem_add_host", p{"nqn": red.nqn, "host": lostHost}},
		"another address":                       {"nvmf_subsystem_add_listener", listen(p{"traddr": "127.0.0.2", "trsvcid": "4420"})},
		"all addresses":                         {"nvmf_subsystem_add_listener", listen(p{"traddr": "0.0.0.0", "trsvcid": "4420"})},
		"another port":                          {"nvmf_subsystem_add_listener", listen(p{"traddr": "127.0.0.1", "trsvcid": "4421"})},
		"another spelling of a port":            {"nvmf_subsystem_add_listener", listen(p{"traddr": "127.0.0.1", "trsvcid": "04420"})},
		"no port":                               {"nvmf_subsystem_add_listener", listen(p{"traddr": "127.0.0.1"})},
		"a host name instead of an IP address":  {"nvmf_subsystem_add_listener", listen(p{"traddr": "localhost", "trsvcid": "4420"})},
		"another transport":                     {"nvmf_subsystem_add_listener", listen(p{"trtype": "FC", "traddr": "127.0.0.1", "trsvcid": "4420"})},
		"a directory on the host":               {"nvmf_subsystem_add_listener", listen(p{"trtype": "VFIOUSER", "traddr": "/var/run", "trsvcid": "0"})},
		"an alias of another tenant's volume":   {"bdev_lvol_create", p{"lvol_name": "a/b", "size_in_mib": 4, "lvs_name": "lvs-red"}},
		"a name that SPDK would truncate":       {"bdev_lvol_rename", p{"old_name": red.volume, "new_name": strings.Repeat("ü", 32)}},
		"a NUL":                                 {"bdev_lvol_rename", p{"old_name": red.volume, "new_name": "x\x00y"}},
		"a bdev that does not exist yet":        {"bdev_passthru_create", p{"base_bdev_name": red.malloc, "name": "red-p"}},
		"iSCSI groups":                          {"iscsi_target_node_add_pg_ig_maps", p{"name": red.iqn, "pg_ig_maps": []any{p{"pg_tag": 1, "ig_tag": 1}}}},
		"iSCSI secrets":                         {"iscsi_get_auth_groups", nil},
		"an authentication group":               {"iscsi_target_node_set_auth", p{"name": red.iqn, "chap_group": 7}},
		"a block device of the target's host":   {"nbd_start_disk", p{"bdev_name": red.malloc}},
		"transports":                            {"nvmf_create_transport", p{"trtype": "RDMA"}},
		"the end":                               {"spdk_kill_instance", p{"sig_name": "SIGTERM"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.sent)
			_, err := w.call("alice", c.method, c.params)
			var refused *Refusal
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, "red", refused.Tenant)
			assert.Len(t, w.sent, before, "nothing was sent")
		})
	}
}

// A call that names another tenant's volume by UUID causes as many look-ups as a call that names a
// missing volume.
func TestLookupsDoNotRevealExistence(t *testing.T) {
	w := newWorld(t, "v26.05")
	_, blue := w.settle()
	count := func(name string) int {
		w.tenancy.stores.forget()
		before := len(w.asks)
		_, err := w.call("alice", "bdev_lvol_delete", p{"name": name})
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		return len(w.asks) - before
	}
	none := "11111111-2222-4333-8444-555555555555"
	assert.Equal(t, count(none), count(blue.volume))
	assert.Equal(t, count(none), count(blue.volume))
	assert.Zero(t, count("lvs-blue/vol"))
	assert.Zero(t, count("blue-malloc"))
}

// The owner of an alias is determined from its spelling and the cached lvstores. Only bdevs that
// match a glob are looked up, because they must not be based on a volume.
func TestAliasesNeedNoLookup(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	w.must("alice", "bdev_lvol_get_lvstores", nil)
	before := len(w.asks)
	w.must("alice", "bdev_set_qos_limit", p{"name": "lvs-red/vol", "rw_ios_per_sec": 1000})
	assert.Len(t, w.asks, before)
	w.must("alice", "bdev_set_qos_limit", p{"name": red.malloc, "rw_ios_per_sec": 1000})
	assert.Len(t, w.asks, before+1)
}

func TestOverlappingTenantsAreRejected(t *testing.T) {
	for name, change := range map[string]func(a, b *Tenant){
		"the same lvstore":               func(a, b *Tenant) { b.LVStores = a.LVStores },
		"a glob of a glob":               func(a, b *Tenant) { b.Bdevs = []string{"red-x*"} },
		"a name of a glob":               func(a, b *Tenant) { b.Bdevs = []string{"red-1"} },
		"a prefix of a prefix":           func(a, b *Tenant) { b.NQNPrefixes = []string{"nqn.2016-06.io.spdk:re"} },
		"different letter case":          func(a, b *Tenant) { b.IQNPrefixes = []string{"iqn.2016-06.IO.SPDK:RED-X"} },
		"keys":                           func(a, b *Tenant) { b.KeyPrefixes = []string{"red-"} },
		"everything":                     func(a, b *Tenant) { b.Bdevs = []string{"*"} },
		"a slash in a glob":              func(a, b *Tenant) { b.Bdevs = []string{"lvs/*"} },
		"a slash in an lvstore":          func(a, b *Tenant) { b.LVStores = []string{"lvs-red/x"} },
		"a malformed glob":               func(a, b *Tenant) { b.Hosts = []string{"["} },
		"not an NQN":                     func(a, b *Tenant) { b.NQNPrefixes = []string{"blue"} },
		"a prefix of all NQNs of a year": func(a, b *Tenant) { b.NQNPrefixes = []string{"nqn.2016"} },
		"a file instead of keys":         func(a, b *Tenant) { b.KeyPrefixes = []string{"/etc/"} },
		"no address":                     func(a, b *Tenant) { b.Addresses = []string{"storage-1:4420"} },
		"no name":                        func(a, b *Tenant) { b.Name = "" },
		"one name":                       func(a, b *Tenant) { b.Name = "red" },
		"NQNs of volumes":                func(a, b *Tenant) { b.VolumeNQN = "nqn.2016-06.io.spdk:" },
		"no colon":                       func(a, b *Tenant) { b.VolumeNQN = "nqn.2020-04.io.spdk.csi" },
		"a negative quota":               func(a, b *Tenant) { b.Quota.Volumes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := redTenant(), blueTenant()
			change(&a, &b)
			_, err := New([]Tenant{a, b}, nil, rpcschema.Default(), nil)
			require.Error(t, err)
		})
	}
	_, err := New([]Tenant{redTenant()}, map[string]string{"alice": "rad"}, rpcschema.Default(), nil)
	require.ErrorContains(t, err, "did you mean red?")
}

// A subsystem named after a volume's UUID, as CSI drivers name subsystems, belongs to the volume's
// tenant.
func TestSubsystemsBelongToTheirVolumes(t *testing.T) {
	const prefix = "nqn.2020-04.io.spdk.csi:uuid:"
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN, red.Quota.Subsystems = prefix, 3 })
	red, blue := w.settle()
	w.must("alice", "nvmf_create_subsystem", p{"nqn": prefix + red.volume})
	w.must("alice", "nvmf_subsystem_add_host", p{"nqn": prefix + red.volume, "host": redHost})
	w.must("", "nvmf_create_subsystem", p{"nqn": prefix + blue.volume})
	listed := string(w.must("alice", "nvmf_get_subsystems", nil))
	assert.Contains(t, listed, prefix+red.volume)
	assert.NotContains(t, listed, blue.volume)

	const none = "99999999-abcd-4333-8444-abcdefabcdef"
	for _, method := range []string{"nvmf_create_subsystem", "nvmf_delete_subsystem", "nvmf_get_subsystems", "nvmf_subsystem_get_qpairs"} {
		for _, id := range []string{blue.volume, strings.ToUpper(blue.volume), strings.ReplaceAll(blue.volume, "-", "")} {
			result, err := w.call("alice", method, p{"nqn": prefix + id})
			require.Error(t, err, method)
			ghost, ghostErr := w.call("alice", method, p{"nqn": prefix + gone(id)})
			assert.Equal(t, outcome(ghost, ghostErr, prefix+gone(id)), outcome(result, err, prefix+id), method)
		}
	}
	_, err := w.call("alice", "nvmf_create_subsystem", p{"nqn": prefix + red.snapshot})
	var over *QuotaError
	require.ErrorAs(t, err, &over)
	w.must("alice", "nvmf_delete_subsystem", p{"nqn": prefix + red.volume})
	_, err = w.call("alice", "nvmf_create_subsystem", p{"nqn": prefix + none})
	var refused *Refusal
	require.ErrorAs(t, err, &refused)
}

// A UUID has one canonical spelling. A string that merely begins with a UUID is not a UUID.
func TestUUIDsAreNormalized(t *testing.T) {
	const id = "11111111-2222-4333-8444-5555555555af"
	for text, want := range map[string]string{
		id: id, strings.ToUpper(id): id, strings.ReplaceAll(id, "-", ""): id,
		id + "0": "", id[:35]: "", "{" + id[:34] + "}": "", "{" + id + "}": "", "urn:uuid:" + id: "", id[:35] + "g": "", "": "",
	} {
		assert.Equal(t, want, rpcschema.CanonicalUUID(text), text)
	}
	assert.True(t, rpcschema.IsCanonicalUUID(id), "SPDK's spelling is used unchanged")
	assert.False(t, rpcschema.IsCanonicalUUID(strings.ToUpper(id)))
	assert.False(t, rpcschema.IsCanonicalUUID(id+"0"))
}
