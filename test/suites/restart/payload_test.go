package restart

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	volumeNQN   = "nqn.2020-04.io.spdk.csi:uuid:"
	tenantsYAML = `- {name: red, password_hash: "HASH", roles: [volumes], tenant: red}
- {name: blue, password_hash: "HASH", roles: [volumes], tenant: blue}
roles: {volumes: {allow: ["bdev_*", "nvmf_*", "spdkgate_lvol_*"]}}
tenants:
  red: {lvstores: [lvs-red], bdevs: ["red-*"], volume_nqn_prefix: "nqn.2020-04.io.spdk.csi:uuid:", addresses: ["127.0.0.1"], hosts: ["nqn.2014-08.org.nvmexpress:uuid:*"]}
  blue: {lvstores: [lvs-blue], volume_nqn_prefix: "nqn.2020-04.io.spdk.csi:uuid:", addresses: ["127.0.0.1"], hosts: ["nqn.2014-08.org.nvmexpress:uuid:*"]}
`
)

// An attack describes how a tenant, red, tries to access the volume of another tenant, blue.
type attack struct {
	red, blue        spdkrpc.Caller
	secret           []byte // the contents of blue's volume
	victim, snapshot string // blue's volume, and its snapshot
	evil, decoy      string // red's volume with the payload, and one that red has deleted
}

// prepare creates the lvstores of two tenants.
func (w *testbed) prepare() {
	for disk, store := range map[string]string{"disk0": "lvs-red", "disk1": "lvs-blue"} {
		w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
		w.call("bdev_lvol_create_lvstore", p{"bdev_name": disk, "lvs_name": store, "cluster_sz": 1 << 20}, nil)
	}
	w.call("nvmf_create_transport", p{"trtype": "TCP"}, nil)
}

func (w *testbed) attack() *attack {
	w.t.Helper()
	a := &attack{red: w.as("red"), blue: w.as("blue"), secret: make([]byte, 16<<20)}
	_, _ = rand.Read(a.secret)
	create := func(by spdkrpc.Caller, store, name string, size int) (id string) {
		require.Eventually(w.t, func() bool { // tenants' lvstores are read every 2 s
			return by.Call(w.t.Context(), "bdev_lvol_create", p{"lvs_name": store, "lvol_name": name, "size_in_mib": size, "thin_provision": true}, &id) == nil
		}, long, 200*time.Millisecond)
		return id
	}
	must := func(by spdkrpc.Caller, method string, params p, result any) {
		require.NoError(w.t, by.Call(w.t.Context(), method, params, result), method)
	}
	a.victim = create(a.blue, "lvs-blue", "secret", 16)
	w.write(a.blue, a.victim, a.secret)
	must(a.blue, "bdev_lvol_snapshot", p{"lvol_name": a.victim, "snapshot_name": "snap"}, &a.snapshot)
	require.Error(w.t, a.red.Call(w.t.Context(), "bdev_lvol_clone", p{"snapshot_name": a.snapshot, "clone_name": "x"}, nil))

	a.decoy = create(a.red, "lvs-red", "decoy", 16)
	a.evil = create(a.red, "lvs-red", "evil", 64)
	w.write(a.red, a.evil, w.forge("inner", forgedLvol{name: "loot", uuid: a.decoy, parent: a.snapshot}, forgedLvol{name: "raided", parent: a.victim, raid: "red-raid"}))
	must(a.red, "nvmf_create_subsystem", p{"nqn": volumeNQN + a.decoy, "serial_number": "s"}, nil)
	must(a.red, "bdev_get_bdevs", p{"name": a.decoy}, nil) // the proxy caches its lvstore
	must(a.red, "bdev_lvol_delete", p{"name": a.decoy}, nil)
	must(a.red, "bdev_lvol_snapshot", p{"lvol_name": a.evil, "snapshot_name": "evil-snap"}, nil)
	must(a.red, "bdev_lvol_clone", p{"snapshot_name": "lvs-red/evil-snap", "clone_name": "evil-clone"}, nil)
	time.Sleep(time.Second) // SPDK examines bdevs after it has responded
	return a
}

// nothingGained fails the test if red can see or use any object that its payload refers to.
func (w *testbed) nothingGained(a *attack) {
	w.t.Helper()
	for method, params := range map[string]p{
		"nvmf_subsystem_add_ns": {"nqn": volumeNQN + a.decoy, "namespace": p{"bdev_name": a.decoy}},
		"bdev_get_bdevs":        {"name": a.decoy},
		"bdev_lvol_resize":      {"name": a.decoy, "size_in_mib": 32},
		"bdev_lvol_delete":      {"name": "inner/loot"},
		"bdev_lvol_create":      {"lvs_name": "inner", "lvol_name": "x", "size_in_mib": 1, "thin_provision": true},
		"bdev_lvol_clone":       {"snapshot_name": a.snapshot, "clone_name": "x"},
		"bdev_set_qos_limit":    {"name": "red-raid", "rw_mbytes_per_sec": 1},
	} {
		assert.Error(w.t, a.red.Call(w.t.Context(), method, params, nil), method)
	}
	require.Error(w.t, w.export(a.red, volumeNQN+a.evil, "red-raid"))
	var bdevs []struct{ Aliases []string }
	require.NoError(w.t, a.red.Call(w.t.Context(), "bdev_get_bdevs", nil, &bdevs))
	var names []string
	for _, b := range bdevs {
		names = append(names, b.Aliases...)
	}
	assert.ElementsMatch(w.t, []string{"lvs-red/evil", "lvs-red/evil-snap", "lvs-red/evil-clone"}, names)
	var stores []struct{ Name string }
	require.NoError(w.t, a.red.Call(w.t.Context(), "bdev_lvol_get_lvstores", nil, &stores))
	assert.Equal(w.t, []struct{ Name string }{{"lvs-red"}}, stores)
}

// With bdev_auto_examine off, nothing that a tenant writes to its volume is loaded, either from
// snapshots and clones or after a restart. The other tenant's volumes remain usable.
func TestTenantWrittenMetadataIsNotLoaded(t *testing.T) {
	w := newTestbed(t)
	w.disableAutoExamine, w.tenants = true, tenantsYAML
	require.True(t, w.start())
	w.serve()
	require.Error(t, w.as("red").Call(t.Context(), "bdev_get_bdevs", nil, nil), "tenants are refused while the target examines volumes")
	w.prepare()
	w.call("spdkgate_config_save", nil, nil)
	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	require.Equal(t, new(false), w.examines())
	a := w.attack()
	// twin is an lvstore with the name of tenant blue's lvstore, which contains a clone with the
	// UUID of blue's volume.
	var twin string
	require.NoError(t, a.red.Call(t.Context(), "bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": "twin", "size_in_mib": 64, "thin_provision": true}, &twin))
	w.write(a.red, twin, w.forge("lvs-blue", forgedLvol{name: "secret", uuid: a.victim, parent: a.snapshot}))
	w.awaitSaved()
	for range 2 {
		assert.Equal(t, []string{"lvs-blue", "lvs-red"}, w.stores())
		var victim []struct{ Aliases []string }
		w.call("bdev_get_bdevs", p{"name": a.victim}, &victim)
		assert.Equal(t, []string{"lvs-blue/secret"}, victim[0].Aliases)
		assert.True(t, bytes.Equal(a.secret, w.read(a.blue, volumeNQN+a.victim, a.victim)))
		w.awaitSaved()
		w.kill()
		require.True(t, w.start(w.saved()...))
		w.fresh()
		time.Sleep(time.Second)
	}
	require.NoError(t, a.red.Call(t.Context(), "bdev_lvol_delete", p{"name": twin}, nil))
	w.nothingGained(a)
	require.NoError(t, a.blue.Call(t.Context(), "bdev_lvol_delete", p{"name": a.victim}, nil))
	require.NoError(t, a.blue.Call(t.Context(), "bdev_lvol_delete", p{"name": a.snapshot}, nil))
	assert.True(t, w.allFree("lvs-blue"))
}

// allFree reports whether an lvstore has no allocated data clusters.
func (w *testbed) allFree(name string) bool {
	w.t.Helper()
	var stores []struct {
		FreeClusters  uint64 `json:"free_clusters"`
		TotalClusters uint64 `json:"total_data_clusters"`
	}
	w.call("bdev_lvol_get_lvstores", p{"lvs_name": name}, &stores)
	return stores[0].FreeClusters == stores[0].TotalClusters
}

// The payload works on a target that examines volumes: SPDK shows the administrator a clone with
// all of the other tenant's data. If tenants are admitted to such a target, they gain nothing from
// the payload.
func TestExaminingTargetLoadsTenantWrittenMetadata(t *testing.T) {
	w := newTestbed(t)
	w.acceptLoading, w.tenants = true, tenantsYAML
	require.True(t, w.start())
	w.serve()
	w.prepare()
	a := w.attack()
	assert.Equal(t, []string{"inner", "lvs-blue", "lvs-red"}, w.stores())
	var loaded []struct{ Name string }
	w.call("bdev_get_bdevs", p{"name": "red-raid"}, &loaded)
	w.nothingGained(a)
	require.Error(t, w.export(a.blue, volumeNQN+a.victim, a.victim), "the loaded clone claims the other tenant's volume")
	assert.True(t, bytes.Equal(a.secret, w.read(w.caller, "nqn.2026-11.io.spdk:loot", a.decoy)), "the clone contains the other tenant's data")
}
