package changes

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// After bdev_lvol_rename has failed, a snapshot has a different alias until the target restarts.
// The error says so, and does not claim that the metadata is damaged.
func TestFailedRenameIsRecognized(t *testing.T) {
	for _, uuid := range []string{"uuid-c", "uuid-a"} {
		w := newWorld(t, true)
		w.change = func(b p) {
			if b["uuid"] == uuid {
				b["aliases"] = []string{"lvs0/other"}
			}
		}
		_, err := w.read("uuid-c", "")
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
		assert.ErrorContains(t, err, "bdev_lvol_rename old_name="+uuid+" new_name="+uuid[len("uuid-"):])
		assert.NotContains(t, err.Error(), "check-lvstore")
		var r *Refusal
		require.ErrorAs(t, err, &r)
		assert.NotContains(t, r.ForTenant().Error(), "other")
	}
}

// An lvstore with larger metadata pages or a later version is reported as unsupported, not as
// damaged.
func TestUnsupportedFormatsAreRejected(t *testing.T) {
	for name, change := range map[string]func(super []byte){
		"pages of 16 KiB": func(super []byte) { binary.LittleEndian.PutUint32(super[92:], 16<<10) },
		"version 4":       func(super []byte) { binary.LittleEndian.PutUint32(super[8:], 4) },
	} {
		w := newWorld(t, false)
		change(w.image)
		blobstoretest.Seal(w.image[:blobstore.PageSize])
		_, err := w.read("uuid-c", "uuid-b")
		assert.Equal(t, syscall.EOPNOTSUPP, errnoOf(t, err), name)
		require.ErrorIs(t, err, blobstore.ErrSuperBlock, name)
		assert.ErrorContains(t, err, "full backup", name)
		assert.NotContains(t, err.Error(), "check-lvstore", name)
	}
}

// If the disk returns a read error, the error says so and names the bdev, wherever the error
// occurs. The metadata is not reported as damaged.
func TestReadErrorsOfTheDiskAreReported(t *testing.T) {
	w := newWorld(t, false)
	var offsets []uint64
	w.unreadable = func(at uint64) bool { offsets = append(offsets, at); return false }
	_, err := w.read("uuid-c", "uuid-a")
	require.NoError(t, err)
	require.Greater(t, len(offsets), 20)
	for i := range offsets {
		w := newWorld(t, false)
		n := 0
		w.unreadable = func(uint64) bool { n++; return n > i }
		_, err := w.read("uuid-c", "uuid-a")
		assert.Equal(t, syscall.EIO, errnoOf(t, err), "command %d", i)
		require.ErrorIs(t, err, device.ErrRead)
		assert.ErrorContains(t, err, "bdev disk7n1")
		assert.ErrorContains(t, err, "check the disk")
		var r *Refusal
		require.ErrorAs(t, err, &r)
		assert.NotContains(t, r.ForTenant().Error(), "disk7")
		assert.Contains(t, r.ForTenant().Error(), "ask the administrator of this proxy to check the disk")
	}
}

// The error for a tenant states the reason. It contains only names that the tenant used.
func TestTenantsSeeOnlyTheReason(t *testing.T) {
	for _, c := range []struct {
		change         func(w *world)
		snapshot, base string
		want           string
	}{
		{func(*world) {}, "lvs0/v", "", "lvs0/v is a volume: take a snapshot of it"},
		{func(*world) {}, "uuid-c", "uuid-v", "uuid-v is a volume: take a snapshot of it"},
		{func(w *world) { w.store.Lvols[1].Writable = true }, "uuid-c", "", "a snapshot below the requested one is a volume"},
		{func(w *world) { w.store.Lvols[0].External = true }, "uuid-c", "uuid-b", "a snapshot below the requested one reads from a bdev outside the lvstore"},
		{func(w *world) { w.store.Lvols[0].External = true }, "uuid-c", "lvs0/a", "lvs0/a reads from a bdev outside the lvstore"},
		{func(w *world) { w.store.Lvols[0].External = true }, "uuid-a", "", "uuid-a reads from a bdev outside the lvstore"},
		{func(w *world) { w.store.Lvols[0].Clusters = 1201 }, "uuid-b", "", "a snapshot below the requested one is larger than the lvol above it"},
	} {
		w := newWorld(t, true)
		c.change(w)
		w.write(true)
		_, err := w.read(c.snapshot, c.base)
		assert.Equal(t, syscall.EINVAL, errnoOf(t, err), "%v", err)
		var r *Refusal
		require.ErrorAs(t, err, &r)
		text := r.ForTenant().Error()
		assert.Contains(t, text, blobstore.ErrUnsuitable.Error()+": "+c.want)
		for _, hidden := range []string{"blob", w.path, "disk", `"a"`, `"b"`, `"v"`} {
			assert.NotContains(t, text, hidden)
		}
	}
	w := newWorld(t, true)
	for _, q := range [][2]string{{"lvs0/x", ""}, {"uuid-c", "lvs0/x"}} {
		_, err := w.read(q[0], q[1])
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		assert.ErrorContains(t, err, "bdev lvs0/x does not exist")
	}
}
