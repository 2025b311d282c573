package persist

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// with returns the configuration of a target on which these calls were made.
func with(calls ...string) map[string][]string {
	c := empty()
	c["nvmf"] = calls
	return c
}

// saved returns the calls in the subsystem nvmf of the current file, where the function with places
// its calls.
func (w *world) saved() (list []string) {
	for _, p := range placesOf(w.load(Current), "nvmf") {
		list = append(list, compact(p.call))
	}
	return list
}

// callOf returns a call as SPDK saves it.
func callOf(method, params string) string {
	return fmt.Sprintf(`{"method":%q,"params":%s}`, method, params)
}

// A changedObject contains two versions of a saved call, and the call that turns the first version
// into the second.
type changedObject struct {
	method, before, after string
	by, params            string // "" means the call itself, with the second version's parameters
}

var changedObjects = []changedObject{
	{"iscsi_create_initiator_group", `{"tag":1,"initiators":["a"],"netmasks":["192.0.2.1"]}`, `{"tag":1,"initiators":["a","c"],"netmasks":["192.0.2.1","192.0.2.3"]}`,
		"iscsi_initiator_group_add_initiators", `{"tag":1,"initiators":["c"],"netmasks":["192.0.2.3"]}`},
	{"iscsi_create_initiator_group", `{"tag":1,"initiators":["a","b"],"netmasks":["192.0.2.1"]}`, `{"tag":1,"initiators":["a"],"netmasks":["192.0.2.1"]}`,
		"iscsi_initiator_group_remove_initiators", `{"tag":1,"initiators":["b"]}`},
	{"iscsi_create_auth_group", `{"tag":1,"secrets":[]}`, `{"tag":1,"secrets":[{"user":"u","secret":"s"}]}`, "iscsi_auth_group_add_secret", `{"tag":1,"user":"u","secret":"s"}`},
	{"iscsi_create_portal_group", `{"tag":1,"portals":[{"host":"192.0.2.1","port":"3260"}],"private":false}`, `{"tag":1,"portals":[{"host":"192.0.2.2","port":"3260"}],"private":false}`, "", ""},
	{"iscsi_create_target_node", `{"name":"t","alias_name":"t","pg_ig_maps":[],"luns":[],"queue_depth":8}`, `{"name":"t","alias_name":"t","pg_ig_maps":[],"luns":[{"lun_id":0,"bdev_name":"v"}],"queue_depth":8}`,
		"iscsi_target_node_add_lun", `{"name":"t","bdev_name":"v"}`},
	{"iscsi_create_target_node", `{"name":"t","alias_name":"t","pg_ig_maps":[{"pg_tag":1,"ig_tag":1}],"luns":[],"queue_depth":8}`, `{"name":"t","alias_name":"t","pg_ig_maps":[],"luns":[],"queue_depth":8}`,
		"iscsi_target_node_remove_pg_ig_maps", `{"name":"t","pg_ig_maps":[{"pg_tag":1,"ig_tag":1}]}`},
	{"bdev_raid_create", `{"name":"r","raid_level":"raid1","base_bdevs":["d1","d2"]}`, `{"name":"r","raid_level":"raid1","base_bdevs":["d1","removed_base_bdev_1"]}`, "bdev_raid_remove_base_bdev", `{"name":"d2"}`},
	{"bdev_raid_create", `{"name":"r","raid_level":"raid1","base_bdevs":["d1","removed_base_bdev_1"]}`, `{"name":"r","raid_level":"raid1","base_bdevs":["d1","d3"]}`, "bdev_raid_add_base_bdev", `{"raid_bdev":"r","base_bdev":"d3"}`},
	{"bdev_null_create", `{"name":"n","num_blocks":8,"block_size":512}`, `{"name":"n","num_blocks":16,"block_size":512}`, "bdev_null_resize", `{"name":"n","new_size":1}`},
	{"bdev_ocf_create", `{"name":"o","mode":"wt","cache_bdev_name":"c","core_bdev_name":"d"}`, `{"name":"o","mode":"wb","cache_bdev_name":"c","core_bdev_name":"d"}`, "bdev_ocf_set_cache_mode", `{"name":"o","mode":"wb"}`},
	{"bdev_delay_create", `{"name":"e","base_bdev_name":"d","avg_read_latency":1,"p99_read_latency":1,"avg_write_latency":1,"p99_write_latency":1}`,
		`{"name":"e","base_bdev_name":"d","avg_read_latency":9,"p99_read_latency":1,"avg_write_latency":1,"p99_write_latency":1}`, "bdev_delay_update_latency", `{"delay_bdev_name":"e","latency_type":"avg_read","latency_us":9}`},
	{"bdev_split_create", `{"base_bdev":"d","split_count":2}`, `{"base_bdev":"d","split_count":3}`, "", ""},
	{"bdev_malloc_create", `{"name":"m","num_blocks":8,"block_size":512}`, `{"name":"m","num_blocks":16,"block_size":512}`, "", ""},
	{"bdev_aio_create", `{"name":"f","filename":"/a"}`, `{"name":"f","filename":"/b"}`, "", ""},
	{"bdev_nvme_set_hotplug", `{"enable":true,"period_us":1}`, `{"enable":false,"period_us":1}`, "", ""},
	{"bdev_nvme_set_multipath_policy", `{"name":"x","policy":"active_active"}`, `{"name":"x","policy":"active_passive"}`, "", ""},
	{"bdev_nvme_start_discovery", `{"name":"x","trtype":"tcp","traddr":"192.0.2.1"}`, `{"name":"x","trtype":"tcp","traddr":"192.0.2.2"}`, "", ""},
	{"vhost_controller_set_coalescing", `{"ctrlr":"v","delay_base_us":1,"iops_threshold":1}`, `{"ctrlr":"v","delay_base_us":2,"iops_threshold":1}`, "", ""},
	{"vhost_create_blk_controller", `{"ctrlr":"v","dev_name":"d1"}`, `{"ctrlr":"v","dev_name":"d2"}`, "", ""},
	{"vhost_scsi_controller_add_target", `{"ctrlr":"v","scsi_target_num":0,"bdev_name":"d1"}`, `{"ctrlr":"v","scsi_target_num":0,"bdev_name":"d2"}`, "", ""},
	{"ublk_start_disk", `{"bdev_name":"d1","ublk_id":1}`, `{"bdev_name":"d2","ublk_id":1}`, "", ""},
	{"nbd_start_disk", `{"bdev_name":"d1","nbd_device":"/dev/nbd0"}`, `{"bdev_name":"d2","nbd_device":"/dev/nbd0"}`, "", ""},
	{"framework_set_scheduler", `{"name":"static"}`, `{"name":"dynamic"}`, "", ""},
	{"accel_assign_opc", `{"opname":"copy","module":"software"}`, `{"opname":"copy","module":"ioat"}`, "", ""},
	{"sock_set_default_impl", `{"impl_name":"posix"}`, `{"impl_name":"uring"}`, "", ""},
	{"nvmf_set_max_subsystems", `{"max_subsystems":1}`, `{"max_subsystems":2}`, "", ""},
	{"fsdev_set_opts", `{"fsdev_io_pool_size":1,"fsdev_io_cache_size":1}`, `{"fsdev_io_pool_size":2,"fsdev_io_cache_size":1}`, "", ""},
	{"keyring_file_add_key", `{"name":"k","path":"/a"}`, `{"name":"k","path":"/b"}`, "", ""},
	{"nvmf_create_transport", `{"trtype":"TCP","max_queue_depth":64}`, `{"trtype":"TCP","max_queue_depth":128}`, "", ""},
	{"nvmf_subsystem_add_ns", `{"nqn":"n","namespace":{"nsid":1,"bdev_name":"v1"}}`, `{"nqn":"n","namespace":{"nsid":1,"bdev_name":"v2"}}`, "", ""},
}

// changed notifies the saver of the call that changes the object.
func (c changedObject) changed(t *testing.T, w *world) {
	method, text := c.by, c.params
	if method == "" {
		method, text = c.method, c.after
	}
	_, known := w.saver.opts.Schema.Method(method)
	require.True(t, known, method)
	var p params
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	w.saver.Changed(method, p)
}

// After a call has changed an object, the file contains only the target's call for this object,
// even if the target lacked the object and a call created it again.
func TestChangedObjectIsSavedOnce(t *testing.T) {
	for _, c := range changedObjects {
		t.Run(fmt.Sprint(c.method, " ", c.by), func(t *testing.T) {
			before, after := callOf(c.method, c.before), callOf(c.method, c.after)
			w := newWorld(t)
			w.target.restart("p1", with(before))
			w.save()
			require.Equal(t, []string{before}, w.saved())
			w.target.set("nvmf", after)
			c.changed(t, w)
			require.NoError(t, w.saver.AwaitSaved(t.Context(), "p1"))
			assert.Equal(t, []string{after}, w.saved())
			assert.Empty(t, w.saver.Status().Missing)

			w.target.restart("p2", with())
			w.save()
			assert.Equal(t, []string{after}, w.saved())
			assert.Len(t, w.saver.Status().Missing, 1)
			w.target.set("nvmf", before)
			c.by, c.after = "", c.before
			c.changed(t, w)
			require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
			assert.Equal(t, []string{before}, w.saved())
			assert.Empty(t, w.saver.Status().Missing)
		})
	}
}

// Similar objects that spdk_tgt can load together are not mistaken for a single object.
func TestSimilarObjectsAreAllKept(t *testing.T) {
	for _, c := range []struct{ method, one, other string }{
		{"bdev_malloc_create", `{"name":"m1","num_blocks":8,"block_size":512}`, `{"name":"m2","num_blocks":8,"block_size":512}`},
		{"bdev_rbd_create", `{"name":"b1","pool_name":"p","rbd_name":"i","block_size":512}`, `{"name":"b2","pool_name":"p","rbd_name":"i","block_size":512}`},
		{"bdev_nvme_attach_controller", `{"name":"x","trtype":"TCP","traddr":"192.0.2.1","trsvcid":"4420"}`, `{"name":"x","trtype":"TCP","traddr":"192.0.2.1","trsvcid":"4421"}`},
		{"bdev_nvme_attach_controller", `{"name":"x","trtype":"TCP","traddr":"192.0.2.1","trsvcid":"4420"}`, `{"name":"x","trtype":"TCP","traddr":"192.0.2.2","trsvcid":"4420"}`},
		{"nvmf_discovery_add_referral", `{"address":{"trtype":"TCP","traddr":"192.0.2.1"},"subnqn":"n1"}`, `{"address":{"trtype":"TCP","traddr":"192.0.2.1"},"subnqn":"n2"}`},
		{"vhost_scsi_controller_add_target", `{"ctrlr":"v","scsi_target_num":0,"bdev_name":"d1"}`, `{"ctrlr":"v","scsi_target_num":1,"bdev_name":"d1"}`},
		{"iscsi_create_initiator_group", `{"tag":1,"initiators":["a"],"netmasks":["ANY"]}`, `{"tag":2,"initiators":["a"],"netmasks":["ANY"]}`},
		{"ublk_start_disk", `{"bdev_name":"d","ublk_id":1}`, `{"bdev_name":"d","ublk_id":2}`},
		{"nvmf_subsystem_add_ns", `{"nqn":"n","namespace":{"nsid":1,"bdev_name":"v"}}`, `{"nqn":"n","namespace":{"nsid":2,"bdev_name":"v"}}`},
	} {
		t.Run(fmt.Sprint(c.method, " ", c.other), func(t *testing.T) {
			one, other := callOf(c.method, c.one), callOf(c.method, c.other)
			w := newWorld(t)
			w.target.restart("p1", with(one, other))
			w.save()
			for i, process := range []string{"p1", "p2"} { // first removed without a call, then kept
				w.target.restart(process, with(other))
				w.save()
				assert.ElementsMatch(t, []string{one, other}, w.saved(), process)
				assert.Len(t, w.saver.Status().Missing, 1, i)
			}
		})
	}
}

// If a RAID or an iSCSI target node loses a disk without a call, the target may be stopping. Until
// this is ruled out, the file keeps a single call with all disks.
func TestObjectThatLostADiskIsSavedOnce(t *testing.T) {
	for method, c := range map[string][2]string{
		"bdev_raid_create":         {`{"name":"r","raid_level":"raid1","base_bdevs":["d1","d2"]}`, `{"name":"r","raid_level":"raid1","base_bdevs":["d1","removed_base_bdev_1"]}`},
		"iscsi_create_target_node": {`{"name":"t","alias_name":"t","pg_ig_maps":[],"luns":[{"lun_id":0,"bdev_name":"v"}],"queue_depth":8}`, `{"name":"t","alias_name":"t","pg_ig_maps":[],"luns":[],"queue_depth":8}`},
	} {
		t.Run(method, func(t *testing.T) {
			whole, reduced := callOf(method, c[0]), callOf(method, c[1])
			w := newWorld(t)
			w.target.restart("p1", with(whole))
			w.save()
			w.target.set("nvmf", reduced)
			for range 2 {
				w.save()
				assert.Equal(t, []string{whole}, w.saved())
				assert.True(t, w.saver.Status().Unsettled)
			}
			w.saver.suspect.since = time.Now().Add(-w.saver.opts.Settle)
			w.save()
			assert.Equal(t, []string{reduced}, w.saved())
			assert.Empty(t, w.saver.Status().Missing)

			w = newWorld(t)
			w.target.restart("p1", with(whole))
			w.save()
			w.target.restart("p2", with(reduced))
			w.save()
			assert.Equal(t, []string{whole}, w.saved(), "another process had all disks")
		})
	}
}
