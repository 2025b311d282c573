package changes

import (
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
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
