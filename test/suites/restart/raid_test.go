package restart

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
)

// A tenant writes a partition table to its volumes, and also a RAID superblock with a name that
// matches another tenant's bdevs. A target that examines volumes creates bdevs from the table and
// the superblock. These bdevs do not belong to either tenant, and the doctor command reports the
// RAID.
func TestLoadedRAIDBelongsToNoTenant(t *testing.T) {
	w := newTestbed(t)
	w.acceptLoading, w.tenants = true, strings.Replace(tenantsYAML, "lvstores: [lvs-blue]", `lvstores: [lvs-blue], bdevs: ["blue-*"]`, 1)
	require.True(t, w.start())
	w.serve()
	w.prepare()
	red, blue := w.as("red"), w.as("blue")
	const none = anyVictim
	volumes := map[string]string{}
	forged := w.forgeAll("lvs-blue", "blue-raid")
	for _, name := range []string{"RAID", "GPT"} {
		var id string
		require.Eventually(t, func() bool {
			return red.Call(t.Context(), "bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": name, "size_in_mib": 64, "thin_provision": true}, &id) == nil
		}, long, 200*time.Millisecond)
		volumes[name] = id
		w.write(red, id, forged.of(w, id, none, anySnapshot, anyDecoy)[name])
	}
	w.awaitSaved()
	w.killed()
	var bdevs []struct{ Name string }
	for _, loaded := range []string{"blue-raid", volumes["GPT"] + "p1"} {
		require.Eventually(t, func() bool { return w.caller.Call(t.Context(), "bdev_get_bdevs", p{"name": loaded}, &bdevs) == nil }, long, 50*time.Millisecond, loaded)
	}
	w.call("bdev_passthru_create", p{"name": "blue-pt", "base_bdev_name": "blue-raid"}, nil)
	w.call("bdev_malloc_create", p{"name": "blue-disk", "num_blocks": 16 << 20 / blockBytes, "block_size": blockBytes}, nil)

	for _, name := range []string{"blue-raid", "blue-pt", volumes["RAID"], volumes["GPT"] + "p1"} {
		for method, params := range map[string]p{
			"bdev_get_bdevs":       {"name": name},
			"bdev_set_qos_limit":   {"name": name, "rw_mbytes_per_sec": 1},
			"bdev_lvol_clone_bdev": {"bdev": name, "lvs_name": "lvs-blue", "clone_name": "x"},
			"bdev_raid_delete":     {"name": name},
			"bdev_passthru_delete": {"name": name},
		} {
			assert.Error(t, blue.Call(t.Context(), method, params, nil), "%s %s", method, name)
		}
		assert.Error(t, w.export(blue, volumeNQN+none, name), name)
	}
	require.NoError(t, blue.Call(t.Context(), "bdev_get_bdevs", nil, &bdevs))
	assert.Equal(t, []struct{ Name string }{{"blue-disk"}}, bdevs, "what the administrator made is blue's")
	require.NoError(t, blue.Call(t.Context(), "bdev_set_qos_limit", p{"name": "blue-disk", "rw_mbytes_per_sec": 1}, nil))
	require.NoError(t, red.Call(t.Context(), "bdev_get_bdevs", nil, &bdevs))
	assert.ElementsMatch(t, []struct{ Name string }{{volumes["RAID"]}, {volumes["GPT"]}}, bdevs)
	assert.Contains(t, w.examination(w.driver())[doctor.Nested], "RAID blue-raid")
	w.call("bdev_get_bdevs", p{"name": "blue-raid"}, nil)
}
