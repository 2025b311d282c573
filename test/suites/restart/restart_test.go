package restart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type p = map[string]any

const (
	nqn    = "nqn.2016-06.io.spdk:"
	host   = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-00000000000"
	secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
)

func listen(port string) p {
	return p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
}

// populate creates objects of all kinds through the proxy.
func (w *testbed) populate() {
	w.t.Helper()
	var v1, v2, clone string
	w.call("bdev_aio_create", p{"filename": w.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
	w.call("bdev_aio_create", p{"filename": w.at("disk1"), "name": "disk1", "block_size": 512}, nil)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0"}, nil)
	w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v1", "size_in_mib": 64, "thin_provision": true}, &v1)
	w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v2", "size_in_mib": 16}, &v2)
	w.call("bdev_lvol_snapshot", p{"lvol_name": "lvs0/v1", "snapshot_name": "s1"}, nil)
	w.call("bdev_lvol_clone", p{"snapshot_name": "lvs0/s1", "clone_name": "c1"}, &clone)
	w.call("bdev_set_qos_limit", p{"name": v1, "rw_ios_per_sec": 5000}, nil)
	w.call("bdev_passthru_create", p{"base_bdev_name": v2, "name": "pt0"}, nil)
	w.call("bdev_malloc_create", p{"name": "m0", "num_blocks": 16384, "block_size": 512}, nil)
	last := "m0"
	if w.has("bdev_crypto_create") { // with SPDK's default options only some targets have it
		last = "cr0"
		w.call("accel_crypto_key_create", p{"cipher": "AES_XTS", "key": "00112233445566778899001122334455", "key2": "11223344556677889900112233445500", "name": "ck0"}, nil)
		w.call("bdev_crypto_create", p{"base_bdev_name": "m0", "name": "cr0", "key_name": "ck0"}, nil)
	}
	w.call("nvmf_create_transport", p{"trtype": "TCP", "max_queue_depth": 64}, nil)
	for i, bdev := range []string{v1, clone, last} {
		n := nqn + string(rune('a'+i))
		w.call("nvmf_create_subsystem", p{"nqn": n, "serial_number": "S", "model_number": "M", "ana_reporting": i == 0}, nil)
		w.call("nvmf_subsystem_add_ns", p{"nqn": n, "namespace": p{"bdev_name": bdev, "nsid": i + 1}}, nil)
		w.call("nvmf_subsystem_add_listener", p{"nqn": n, "listen_address": listen("4420")}, nil)
	}
	w.call("nvmf_subsystem_add_listener", p{"nqn": nqn + "a", "listen_address": listen("4421")}, nil)
	w.call("nvmf_subsystem_add_host", p{"nqn": nqn + "b", "host": host + "2"}, nil)
	w.call("nvmf_discovery_add_referral", p{"address": listen("8009")}, nil)
	if w.hasKeys() {
		w.call("spdkgate_key_add", p{"name": "host-1", "secret": secret}, nil)
		w.call("nvmf_subsystem_add_host", p{"nqn": nqn + "a", "host": host + "1", "dhchap_key": "host-1"}, nil)
	}
	w.call("iscsi_create_auth_group", p{"tag": 3, "secrets": []p{{"user": "u", "secret": "longsecret12"}}}, nil)
	w.call("iscsi_create_portal_group", p{"tag": 1, "portals": []p{{"host": "127.0.0.1", "port": "3260"}}}, nil)
	w.call("iscsi_create_initiator_group", p{"tag": 2, "initiators": []string{"ANY"}, "netmasks": []string{"ANY"}}, nil)
	w.call("iscsi_create_target_node", p{"name": "disk1", "alias_name": "d1", "pg_ig_maps": []p{{"pg_tag": 1, "ig_tag": 2}},
		"luns": []p{{"bdev_name": "disk1", "lun_id": 0}}, "queue_depth": 64, "require_chap": true, "chap_group": 3}, nil)
}

func TestKilledTargetIsRestored(t *testing.T) {
	w := newTestbed(t)
	folder, err := persist.OpenFolder(w.at("saved"), 10)
	require.NoError(t, err)
	_, err = folder.Prepare()
	require.NoError(t, err)
	require.True(t, w.start(w.saved()...), "for the first time")
	w.serve()
	w.populate()
	w.awaitSaved()
	before := w.state()
	for range 2 {
		w.kill()
		require.True(t, w.start(w.saved()...))
		w.fresh()
		assert.Equal(t, before, w.state())
	}
	// Changes after the restart are also saved.
	w.call("nvmf_subsystem_remove_listener", p{"nqn": nqn + "a", "listen_address": listen("4421")}, nil)
	if w.hasKeys() {
		require.ErrorContains(t, w.caller.Call(t.Context(), "spdkgate_key_remove", p{"name": "host-1"}, nil), "in use")
		w.call("nvmf_subsystem_remove_host", p{"nqn": nqn + "a", "host": host + "1"}, nil)
		w.call("spdkgate_key_remove", p{"name": "host-1"}, nil)
	}
	w.awaitSaved()
	assert.Empty(t, w.status().Missing)
	before = w.state()
	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, before, w.state())
	left, err := filepath.Glob(w.at("keys/*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.NotContains(t, w.log.String(), secret)
	assert.NotContains(t, w.log.String(), "longsecret12")
	assert.NotContains(t, w.log.String(), "level=ERROR")
}

// SPDK cannot load its own saved configuration if a RAID without a superblock has volumes on it.
// The configuration lists the RAID after its disks, so SPDK finds the lvstore on each disk first.
// The configuration also lists QoS limits before SPDK has found the volumes.
func TestVolumesOnRAIDAreRestored(t *testing.T) {
	w := newTestbed(t)
	require.True(t, w.start())
	w.serve()
	for _, disk := range []string{"disk0", "disk1"} {
		w.call("bdev_aio_create", p{"filename": w.at(disk), "name": disk, "block_size": 4096}, nil)
	}
	w.call("bdev_raid_create", p{"name": "raid", "raid_level": "raid1", "base_bdevs": []string{"disk0", "disk1"}}, nil)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": "raid", "lvs_name": "lvs0", "cluster_sz": 1 << 20}, nil)
	for i := range 100 {
		var v string
		w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v" + string(rune('0'+i/10)) + string(rune('0'+i%10)), "size_in_mib": 4, "thin_provision": true}, &v)
		w.call("bdev_set_qos_limit", p{"name": v, "rw_ios_per_sec": 10000}, nil)
	}
	w.call("spdkgate_config_save", nil, nil)
	before := w.state()
	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, before, w.state())

	// The file current.json has the same contents as the file that SPDK itself would save.
	text, err := os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	var file struct {
		Subsystems []struct {
			Subsystem string `json:"subsystem"`
			Config    []p    `json:"config"`
		} `json:"subsystems"`
	}
	require.NoError(t, json.Unmarshal(text, &file))
	for i, s := range file.Subsystems {
		if s.Subsystem != "bdev" {
			continue
		}
		var raids, limits, rest []p
		for _, c := range s.Config {
			switch c["method"] {
			case "bdev_set_qos_limit":
				limits = append(limits, c)
			case "bdev_raid_create":
				raids = append(raids, c)
			default:
				rest = append(rest, c)
			}
		}
		last := len(rest) - 1
		file.Subsystems[i].Config = slices.Concat(rest[:last], raids, limits, rest[last:])
	}
	text, err = json.Marshal(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.at("theirs.json"), text, 0o600))
	w.kill()
	assert.False(t, w.start("-c", w.at("theirs.json")), "SPDK can load what it saves now: the correction in proxy/persist/correct.go is no longer needed")
}

func TestSavedFileIsKeptIfTargetStartsWithoutIt(t *testing.T) {
	w := newTestbed(t)
	require.True(t, w.start())
	w.serve()
	w.populate()
	w.awaitSaved()
	before := w.state()
	saved, err := os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	w.kill()
	require.True(t, w.start())
	w.fresh()
	w.call("nvmf_create_transport", p{"trtype": "TCP"}, nil)
	w.awaitSaved()
	assert.NotEmpty(t, w.status().Missing)
	now, err := os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	assert.Equal(t, string(saved), string(now))

	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, before, w.state())
	require.Eventually(t, func() bool { return len(w.status().Missing) == 0 }, long, 50*time.Millisecond, "by itself")
}

// The target receives SIGTERM immediately after a change. The proxy must not save the configuration
// that the target still reports while it is stopping.
func TestStoppingTargetsConfigurationIsNotSaved(t *testing.T) {
	w := newTestbed(t)
	require.True(t, w.start())
	w.serve()
	w.populate()
	w.awaitSaved()
	before := w.state()
	w.call("bdev_null_create", p{"name": "n0", "num_blocks": 100, "block_size": 512}, nil)
	require.NoError(t, w.process.Process.Signal(syscall.SIGTERM))
	for ended := false; !ended; {
		_ = w.caller.Call(t.Context(), "spdkgate_config_save", nil, nil)
		select {
		case <-w.ended:
			ended = true
		default:
		}
	}
	require.True(t, w.start(w.saved()...))
	w.fresh()
	after := w.state()
	delete(after, "bdev_get_bdevs") // the file may or may not contain n0
	delete(before, "bdev_get_bdevs")
	assert.Equal(t, before, after)
}

// The next process loads the file that an administrator has chosen, even if the configuration of
// the running process is changed in the meantime.
func TestFileChosenByAdministratorIsLoaded(t *testing.T) {
	w := newTestbed(t)
	require.True(t, w.start())
	w.serve()
	w.populate()
	w.awaitSaved()
	before := w.state()
	require.NoError(t, os.Link(w.at("saved/current.json"), w.at("saved/wanted.json")))
	w.call("nvmf_delete_subsystem", p{"nqn": nqn + "c"}, nil)
	w.awaitSaved()
	folder, err := persist.OpenFolder(w.at("saved"), 10)
	require.NoError(t, err)
	require.NoError(t, folder.Use("wanted.json"))
	chosen, err := os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	w.call("bdev_null_create", p{"name": "n0", "num_blocks": 100, "block_size": 512}, nil)
	w.awaitSaved()
	assert.NotNil(t, w.status().ChosenAt)
	now, err := os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	assert.Equal(t, string(chosen), string(now))
	w.kill()
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, before, w.state())
	require.Eventually(t, func() bool { return w.status().ChosenAt == nil }, long, 50*time.Millisecond, "by itself")
	w.call("bdev_null_create", p{"name": "n1", "num_blocks": 100, "block_size": 512}, nil)
	w.awaitSaved()
	now, err = os.ReadFile(w.at("saved/current.json"))
	require.NoError(t, err)
	assert.Contains(t, string(now), `"n1"`)
}

func TestVolumesReturnWithTheirMissingDisk(t *testing.T) {
	w := newTestbed(t)
	require.True(t, w.start())
	w.serve()
	w.populate()
	w.awaitSaved()
	before := w.state()
	w.kill()
	require.NoError(t, os.Rename(w.at("disk0"), w.at("away")))
	assert.False(t, w.start(w.saved()...), "SPDK does not start if a part of its configuration fails")
	require.True(t, w.start(w.saved("--json-ignore-init-errors")...))
	w.fresh()
	subsystems, err := w.client.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	assert.Len(t, subsystems, 4, "the other objects exist")
	w.call("bdev_null_create", p{"name": "n0", "num_blocks": 100, "block_size": 512}, nil)
	require.Eventually(t, func() bool { return len(w.status().Missing) > 0 }, long, 50*time.Millisecond)
	t.Logf("missing: %s", strings.Join(w.status().Missing, "; "))

	w.kill()
	require.NoError(t, os.Rename(w.at("away"), w.at("disk0")))
	require.True(t, w.start(w.saved()...))
	w.fresh()
	assert.Equal(t, before, w.state(), "the disk and the objects on it exist again")
}
