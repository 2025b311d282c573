package persist

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/persist/raids"
)

// The status lists RAIDs that a restart would not restore. Each of them is logged once.
func TestRAIDsThatARestartLosesAreListed(t *testing.T) {
	w := newWorld(t)
	w.target.raids = `[{"name":"r","superblock":true,"base_bdevs_list":[{"name":"d0"}]}]`
	w.target.set("bdev", `{"method":"bdev_aio_create","params":{"name":"d0","filename":"/dev/sdb"}}`)
	w.save()
	want := []raids.Lost{{Raid: "r", Disk: "d0", Cause: raids.NewUUID}}
	for range 3 {
		assert.Equal(t, want, w.saver.Status().NotRestorable)
		assert.Equal(t, 1, w.log.Count("would not restore a RAID"))
		w.save()
	}

	w.target.fail["bdev_raid_get_bdevs"] = errors.New("gone")
	require.Error(t, w.saver.Save(t.Context(), false))
	assert.Equal(t, want, w.saver.Status().NotRestorable, "the status is not updated yet")
	delete(w.target.fail, "bdev_raid_get_bdevs")
	w.target.raids = "[]"
	w.save()
	assert.Empty(t, w.saver.Status().NotRestorable)
}
