package restart

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// exported describes the access that a restarted target allows: the hosts and the number of
// namespaces of each subsystem except the discovery subsystem.
func (w *testbed) exported() map[string][]string {
	w.t.Helper()
	subsystems, err := w.client.NVMfGetSubsystems(w.t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(w.t, err)
	admitted := map[string][]string{}
	for _, s := range subsystems {
		if s.Subtype == "Discovery" {
			continue
		}
		list := []string{}
		for _, h := range s.Hosts {
			list = append(list, h.NQN)
		}
		for range s.Namespaces {
			list = append(list, "namespace")
		}
		slices.Sort(list)
		admitted[s.NQN] = list
	}
	return admitted
}

// killed kills the target immediately, and restarts it with the saved file.
func (w *testbed) killed() {
	w.t.Helper()
	w.kill()
	require.True(w.t, w.start(w.saved()...))
	w.fresh()
}

// newNVMfTestbed returns a testbed whose target, real or simulated, has an lvstore and an NVMe/TCP
// transport.
func newNVMfTestbed(t *testing.T) *testbed {
	w := newTestbedOrSimulated(t)
	require.True(t, w.start())
	w.serve()
	w.call("bdev_aio_create", p{"filename": w.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
	w.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0"}, nil)
	w.call("nvmf_create_transport", p{"trtype": "TCP"}, nil)
	return w
}

func (w *testbed) createLvol(name string) {
	w.t.Helper()
	w.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": name, "size_in_mib": 16, "thin_provision": true}, nil)
}

// exportLvol creates a volume and exports it to a host.
func (w *testbed) exportLvol(name string) {
	w.t.Helper()
	w.createLvol(name)
	w.call("nvmf_create_subsystem", p{"nqn": nqn + name, "serial_number": "S"}, nil)
	w.call("nvmf_subsystem_add_ns", p{"nqn": nqn + name, "namespace": p{"bdev_name": "lvs0/" + name}}, nil)
	w.call("nvmf_subsystem_add_listener", p{"nqn": nqn + name, "listen_address": listen("4420")}, nil)
	w.call("nvmf_subsystem_add_host", p{"nqn": nqn + name, "host": host + "1"}, nil)
}

// A confirmed change to access remains in effect even if the target is killed immediately after the
// response.
func TestConfirmedChangesSurviveTargetDeath(t *testing.T) {
	w := newNVMfTestbed(t)
	w.createLvol("v")
	w.awaitSaved()
	const old, fenced, next = host + "3", host + "8", host + "4"
	n := nqn + "v"
	for _, step := range []struct {
		method string
		params p
		after  []string // hosts that the subsystem n admits; nil if it does not exist
	}{
		{"nvmf_create_subsystem", p{"nqn": n, "serial_number": "S"}, []string{}},
		{"nvmf_subsystem_add_ns", p{"nqn": n, "namespace": p{"bdev_name": "lvs0/v", "nsid": 1}}, []string{"namespace"}},
		{"nvmf_subsystem_add_listener", p{"nqn": n, "listen_address": listen("4420")}, []string{"namespace"}},
		{"nvmf_subsystem_add_host", p{"nqn": n, "host": old}, []string{"namespace", old}},
		{"nvmf_subsystem_add_host", p{"nqn": n, "host": fenced}, []string{"namespace", old, fenced}},
		{"nvmf_subsystem_remove_host", p{"nqn": n, "host": old}, []string{"namespace", fenced}},
		{"nvmf_subsystem_add_host", p{"nqn": n, "host": next}, []string{"namespace", next, fenced}},
		{"nvmf_subsystem_remove_host", p{"nqn": n, "host": next}, []string{"namespace", fenced}},
		{"nvmf_subsystem_remove_ns", p{"nqn": n, "nsid": 1}, []string{fenced}},
		{"nvmf_delete_subsystem", p{"nqn": n}, nil},
	} {
		began := time.Now()
		w.call(step.method, step.params, nil)
		t.Logf("%s took %.3f s", step.method, time.Since(began).Seconds())
		w.killed()
		got, exists := w.exported()[n]
		require.Equal(t, step.after != nil, exists, step.method)
		slices.Sort(step.after)
		assert.Equal(t, step.after, got, step.method)
		assert.Empty(t, w.status().Missing, step.method)
	}
}

// A volume is deleted, alone or with its lvstore, and the target is killed before the deletion is
// saved. Afterwards, the proxy reports nothing as missing, the export can be removed, and new
// exports are saved.
func TestUnsavedDeletionSurvivesTargetDeath(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		params p
	}{
		"volume":  {"bdev_lvol_delete", p{"name": "lvs0/rv1"}},
		"lvstore": {"bdev_lvol_delete_lvstore", p{"lvs_name": "lvs0"}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/proxy restarted %t", name, restarted), func(t *testing.T) {
				w := newNVMfTestbed(t)
				w.exportLvol("rv1")
				w.awaitSaved()
				w.call(c.method, c.params, nil)
				w.kill()
				if restarted {
					w.stop()
				}
				if !w.start(w.saved()...) { // the file may still contain the volume's namespace
					require.True(t, w.start(w.saved("--json-ignore-init-errors")...))
				}
				if restarted {
					w.serve()
				}
				w.fresh()
				require.Eventually(t, func() bool { return len(w.status().Missing) == 0 }, long, 50*time.Millisecond, "%q", w.status().Missing)
				if _, left := w.exported()[nqn+"rv1"]; left {
					w.call("nvmf_delete_subsystem", p{"nqn": nqn + "rv1"}, nil)
				}
				assert.Empty(t, w.status().Missing)
				if c.method == "bdev_lvol_delete_lvstore" {
					w.call("bdev_lvol_create_lvstore", p{"bdev_name": "disk0", "lvs_name": "lvs0"}, nil)
				}
				w.exportLvol("rv2")
				w.killed()
				assert.Equal(t, map[string][]string{nqn + "rv2": {"namespace", host + "1"}}, sorted(w.exported()))
				assert.Empty(t, w.status().Missing)
			})
		}
	}
}

// While an lvstore's disk is missing, the proxy cannot determine whether SPDK executed the
// lvstore's deletion. Therefore, the exports of its volumes remain in the saved file. If the
// deletion was not executed, they are restored together with the disk.
func TestUncertainLvstoreDeletionKeepsExports(t *testing.T) {
	w := newNVMfTestbed(t)
	w.exportLvol("rv1")
	w.awaitSaved()
	var found []spdkrpc.BdevInfo
	w.call("bdev_get_bdevs", p{"name": "lvs0/rv1"}, &found)
	w.kill()
	w.stop()
	lvol := found[0]
	journal, err := json.Marshal(p{lvol.Name: p{"names": []string{lvol.Name, "lvs0/rv1"}, "lvstore": *lvol.DriverSpecific.Lvol.LvolStoreUUID, "disk": "disk0", "process": "former"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.at("saved/removing"), journal, 0o600))

	require.NoError(t, os.Rename(w.at("disk0"), w.at("away")))
	require.True(t, w.start(w.saved("--json-ignore-init-errors")...))
	w.serve()
	w.fresh()
	w.call("spdkgate_config_save", nil, nil)
	assert.NotEmpty(t, w.status().Missing)

	w.kill()
	require.NoError(t, os.Rename(w.at("away"), w.at("disk0")))
	w.killed()
	require.Eventually(t, func() bool { return len(w.status().Missing) == 0 }, long, 50*time.Millisecond)
	assert.Equal(t, map[string][]string{nqn + "rv1": {"namespace", host + "1"}}, sorted(w.exported()))
}

func sorted(m map[string][]string) map[string][]string {
	for _, list := range m {
		slices.SortFunc(list, func(a, b string) int { return len(a) - len(b) })
	}
	return m
}
