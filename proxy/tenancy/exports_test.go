package tenancy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const redOne, redTwo, blueOne = "nqn.2016-06.io.spdk:red-1", "nqn.2016-06.io.spdk:red-2", "nqn.2016-06.io.spdk:blue-1"

var redAddress = p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}

func hostOf(n int) string {
	return fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-%012d", n)
}

// subsystems returns the target's subsystems, except the discovery subsystem.
func (w *world) subsystems() (list []spdkrpc.NVMfSubsystem) {
	var all []spdkrpc.NVMfSubsystem
	require.NoError(w.t, json.Unmarshal(w.must("", "nvmf_get_subsystems", nil), &all))
	for _, s := range all {
		if s.Subtype == "NVMe" {
			list = append(list, s)
		}
	}
	return list
}

// exportingWorld creates a target with two subsystems that belong to red, which has a quota, and
// one that belongs to blue.
func exportingWorld(t *testing.T, release string, q Quota) *world {
	w := newWorld(t, release, func(red *Tenant) { red.Quota = q })
	w.must("", "nvmf_create_transport", p{"trtype": "TCP"})
	w.must("alice", "nvmf_create_subsystem", p{"nqn": redOne})
	w.must("alice", "nvmf_create_subsystem", p{"nqn": redTwo})
	w.must("bob", "nvmf_create_subsystem", p{"nqn": blueOne})
	return w
}

func (w *world) admitHost(user, nqn string, n int) error {
	_, err := w.call(user, "nvmf_subsystem_add_host", p{"nqn": nqn, "host": hostOf(n)})
	return err
}

// A tenant can admit as many hosts as its quota permits, counted over all its subsystems.
func TestHostQuotaCoversAllSubsystems(t *testing.T) {
	for _, release := range []string{"v26.05", "v23.01"} {
		t.Run(release, func(t *testing.T) {
			pass := atTime(t)
			w := exportingWorld(t, release, Quota{Hosts: 3})
			exceeded := func(err error) {
				t.Helper()
				assert.Equal(t, &QuotaError{Tenant: "red", What: "hosts", Used: 3, Asked: 1, Most: 3}, err)
			}
			require.NoError(t, w.admitHost("alice", redOne, 1))
			require.NoError(t, w.admitHost("alice", redTwo, 1))
			// the next count includes hosts admitted by an administrator
			require.NoError(t, w.admitHost("", redTwo, 2))
			pass(countKeep)
			exceeded(w.admitHost("alice", redOne, 4))
			exceeded(w.admitHost("alice", redTwo, 4))
			for n := range 5 {
				require.NoError(t, w.admitHost("bob", blueOne, n))
			}

			w.must("alice", "nvmf_subsystem_remove_host", p{"nqn": redTwo, "host": hostOf(1)})
			require.NoError(t, w.admitHost("alice", redOne, 4), "removing a host frees its quota")
			exceeded(w.admitHost("alice", redOne, 5))
			w.must("alice", "nvmf_delete_subsystem", p{"nqn": redTwo})
			require.NoError(t, w.admitHost("alice", redOne, 5), "deleting a subsystem frees the quota of its hosts")
			for n := 10; n < 20; n++ {
				require.NoError(t, w.admitHost("", redOne, n), "the quota does not apply to administrators")
			}
			require.Error(t, w.admitHost("alice", redOne, 6))
		})
	}
}

func TestListenerQuotaIsEnforced(t *testing.T) {
	w := exportingWorld(t, "v26.05", Quota{Listeners: 1})
	listen := func(nqn string) error {
		_, err := w.call("alice", "nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": redAddress})
		return err
	}
	require.NoError(t, listen(redOne))
	assert.Equal(t, &QuotaError{Tenant: "red", What: "listeners", Used: 1, Asked: 1, Most: 1}, listen(redTwo))
	w.must("alice", "nvmf_subsystem_remove_listener", p{"nqn": redOne, "listen_address": redAddress})
	require.NoError(t, listen(redTwo))
}

// However many calls run concurrently, only calls within the quota are executed.
func TestConcurrentHostsDoNotExceedQuota(t *testing.T) {
	w := exportingWorld(t, "v26.05", Quota{Hosts: 7})
	var admitted atomic.Int32
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			err := w.admitHost("alice", []string{redOne, redTwo}[n%2], n)
			var over *QuotaError
			if err == nil {
				admitted.Add(1)
			} else {
				assert.ErrorAs(t, err, &over)
			}
		})
		all.Go(func() { assert.NoError(t, w.admitHost("bob", blueOne, n)) })
	}
	all.Wait()
	assert.EqualValues(t, 7, admitted.Load())
	hosts := map[string]int{}
	for _, s := range w.subsystems() {
		hosts[s.NQN] = len(s.Hosts)
	}
	assert.Equal(t, 7, hosts[redOne]+hosts[redTwo])
	assert.Equal(t, 60, hosts[blueOne])
}

// A tenant's exports and snapshots do not wait for each other, because a snapshot excludes only
// calls that affect volumes.
func TestExportsDoNotWaitForVolumes(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib, Hosts: 2})
	w.must("alice", "nvmf_create_subsystem", p{"nqn": redOne})
	require.NoError(t, w.create("a", 4))
	alone, err := w.admit(t.Context(), "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/a", "snapshot_name": "s"})
	require.NoError(t, err)
	defer alone.Close()
	require.NoError(t, w.admitHost("alice", redOne, 1))
	pending, err := w.admit(t.Context(), "nvmf_subsystem_add_host", p{"nqn": redOne, "host": hostOf(2)})
	require.NoError(t, err)
	defer pending.Close()
	alone.Close()
	second, err := w.admit(t.Context(), "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/a", "snapshot_name": "t"})
	require.NoError(t, err)
	second.Close()
}

// If the quota limits only the number of volumes, sizes do not matter: snapshots are taken
// concurrently, and resizing a volume does not count.
func TestVolumeQuotaIgnoresSizes(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 3})
	require.NoError(t, w.create("a", 4))
	snapshot := func(name string) (*Grant, error) {
		return w.admit(t.Context(), "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/a", "snapshot_name": name})
	}
	first, err := snapshot("s")
	require.NoError(t, err)
	second, err := snapshot("t")
	require.NoError(t, err)
	w.must("alice", "bdev_lvol_resize", p{"name": "lvs-red/a", "size_in_mib": 400})
	first.Close() // the call got no response, so it counts
	_, err = second.Answer(t.Context(), nil, failed)
	require.Error(t, err)
	second.Close()
	_, err = w.admit(t.Context(), "spdkgate_lvol_snapshot", p{"snapshots": []any{
		p{"lvol_name": "lvs-red/a", "snapshot_name": "t"}, p{"lvol_name": "lvs-red/a", "snapshot_name": "u"},
	}})
	assert.Equal(t, &QuotaError{Tenant: "red", What: "volumes", Used: 2, Asked: 2, Most: 3}, err)
}

// Everything that a tenant's calls can add is limited. Otherwise, a tenant could make the target's
// configuration arbitrarily large. The proxy reads the configuration before it responds to each
// change, and a restarted target loads it.
func TestTenantAdditionsAreLimited(t *testing.T) {
	const (
		volumes  = "quota.volumes"
		ofBdev   = "at most one for each bdev: quota.volumes, and the bdevs that an administrator creates"
		ofObject = "at most one for each object that it concerns"
	)
	bounds := map[string]string{
		"bdev_lvol_create": volumes, "bdev_lvol_snapshot": volumes, "bdev_lvol_clone": volumes, "bdev_lvol_clone_bdev": volumes, "spdkgate_lvol_snapshot": volumes,
		"bdev_malloc_create": "refused with a quota of volumes, which the configuration always has", "bdev_null_create": "the same",
		"bdev_lvol_create_lvstore": "the names in the tenant's lvstores",
		"nvmf_create_subsystem":    "quota.subsystems", "nvmf_subsystem_add_host": "quota.hosts", "nvmf_subsystem_add_listener": "quota.listeners",
		"nvmf_subsystem_add_ns": "SPDK admits a bdev to one subsystem: quota.volumes", "iscsi_target_node_add_lun": "256 for each target node, which only administrators create",
		"iscsi_target_node_add_pg_ig_maps": "groups belong to no tenant", "spdkgate_key_add": "quota.keys",
		"bdev_set_qos_limit": ofBdev, "bdev_enable_histogram": ofBdev, "bdev_set_qd_sampling_period": ofBdev,
		"bdev_error_inject_error": ofBdev, "bdev_nvme_set_preferred_path": ofBdev, "bdev_nvme_set_multipath_policy": ofBdev,
		"blobfs_create": ofBdev, "iscsi_enable_histogram": ofObject, "iscsi_target_node_set_auth": ofObject, "nvmf_subsystem_set_keys": ofObject,
		"nvmf_subsystem_allow_any_host": ofObject, "nvmf_subsystem_listener_set_ana_state": ofObject, "nvmf_subsystem_set_ns_ana_group": ofObject,
	}
	removes := regexp.MustCompile(`_(delete|remove|detach)(_|$)`)
	changes := strings.Fields(`bdev_aio_rescan bdev_daos_resize bdev_delay_update_latency bdev_error_resume_pending bdev_ftl_unmap bdev_get_iostat
		bdev_lvol_decouple_parent bdev_lvol_grow_lvstore bdev_lvol_inflate bdev_lvol_rename bdev_lvol_rename_lvstore bdev_lvol_resize bdev_lvol_set_parent
		bdev_lvol_set_parent_bdev bdev_lvol_set_read_only bdev_null_resize bdev_ocf_flush_start bdev_ocf_reset_stats bdev_ocf_set_cache_mode
		bdev_ocf_set_seqcutoff bdev_rbd_resize bdev_reset_iostat bdev_uring_rescan blobfs_detect iscsi_target_node_request_logout spdkgate_lvol_snapshot_barrier`)
	w := newWorld(t, "v26.05")
	found := map[string]bool{}
	for _, m := range rpcschema.Default().Methods() {
		if m.Mutates && w.tenancy.Of("alice").MayCall(m.Name) {
			found[m.Name] = true
			_, bounded := bounds[m.Name]
			assert.True(t, bounded || removes.MatchString(m.Name) || slices.Contains(changes, m.Name), "%s: state here what limits how much a tenant can add by calling this method", m.Name)
		}
	}
	for name := range bounds {
		assert.True(t, found[name], "tenants cannot call %s", name)
	}
}
