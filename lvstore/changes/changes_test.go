package changes

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestReadChangesFromTarget(t *testing.T) {
	for _, onFile := range []bool{true, false} {
		w := newWorld(t, onFile)
		for name, c := range map[string]struct {
			snapshot, base string
			want           []int
		}{
			"named by UUID": {"uuid-c", "uuid-b", []int{700, 1299}}, "by alias": {"lvs0/c", "lvs0/a", []int{1, 3, 700, 1299}},
			"all": {"uuid-b", "", []int{0, 1, 3, 600}}, "backwards": {"uuid-a", "uuid-c", []int{1, 3, 700}}, "none": {"uuid-b", "lvs0/b", nil},
		} {
			w.locked = nil
			got, err := w.read(c.snapshot, c.base)
			require.NoError(t, err, name)
			assert.Equal(t, c.want, bits(got.Bitmap), name)
			assert.EqualValues(t, 16<<10, got.ClusterSize)
			assert.EqualValues(t, len(got.Bitmap)*8>>3, (got.Size/got.ClusterSize+7)/8)
			require.Len(t, w.locked, 2)
			assert.Subset(t, w.locked[1], []string{"uuid-a", "lvs0/a"}, "%s: the whole chain is locked", name)
			if strings.HasSuffix(c.snapshot+c.base, "c") {
				assert.ElementsMatch(t, w.locked[1], []string{"uuid-a", "lvs0/a", "uuid-b", "lvs0/b", "uuid-c", "lvs0/c"})
			}
		}
	}
}

func TestEncryptedSnapshotsAreRecognized(t *testing.T) {
	for start, want := range map[string]bool{
		"": false, "LUKS\xba\xbe\x00\x02": true, "LUKS": false, "xLUKS\xba\xbe": false,
		strings.Repeat("\x00", 16<<10) + "SKUL\xba\xbe": true, strings.Repeat("\x00", 16<<10) + "LUKS\xba\xbe": false,
	} {
		w := newWorld(t, true)
		w.store.ClusterSize, w.store.Lvols[0].Start = 32<<10, []byte(start)
		w.write(true)
		for _, q := range [][2]string{{"uuid-a", ""}, {"uuid-c", "uuid-b"}, {"uuid-c", "uuid-a"}} {
			got, err := w.read(q[0], q[1])
			require.NoError(t, err)
			assert.Equal(t, want, got.LUKS, "%q", start)
		}
		// the volume was reformatted
		w.store.Lvols[2].Allocated = append(w.store.Lvols[2].Allocated, 0)
		w.write(true)
		got, err := w.read("uuid-c", "uuid-b")
		require.NoError(t, err)
		assert.Equal(t, want, got.LUKS, "the base is encrypted")
		got, err = w.read("uuid-c", "")
		require.NoError(t, err)
		assert.False(t, got.LUKS)
	}
}

func errnoOf(t *testing.T, err error) syscall.Errno {
	t.Helper()
	var r *Refusal
	require.ErrorAs(t, err, &r)
	return r.Errno
}

func lvol(b p) p { return b["driver_specific"].(p)["lvol"].(p) }

// The target's report must match the metadata on the device.
func TestReportsThatContradictTheDeviceAreRejected(t *testing.T) {
	for name, change := range map[string]func(b p){
		"count":        func(b p) { lvol(b)["num_allocated_clusters"] = 1 },
		"no count":     func(b p) { delete(lvol(b), "num_allocated_clusters") },
		"parent":       func(b p) { lvol(b)["base_snapshot"] = "a" },
		"no parent":    func(b p) { delete(lvol(b), "base_snapshot") },
		"lvstore":      func(b p) { b["aliases"] = []string{"lvs1/c"} },
		"no name":      func(b p) { b["aliases"] = []string{} },
		"size":         func(b p) { b["num_blocks"] = 1301 * 32 },
		"another UUID": func(b p) { b["uuid"] = "uuid-x" },
	} {
		w := newWorld(t, true)
		w.change = func(b p) {
			if b["uuid"] == "uuid-c" {
				change(b)
			}
		}
		_, err := w.read("lvs0/c", "lvs0/a")
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "check-lvstore")
	}
	for name, change := range map[string]func(b p){
		"another size":            func(b p) { b["num_blocks"] = 1201 * 32 },
		"an external parent":      func(b p) { lvol(b)["esnap_clone"] = true },
		"not an lvol":             func(b p) { b["driver_specific"] = p{} },
		"lvol of another lvstore": func(b p) { lvol(b)["lvol_store_uuid"] = "other" },
		"another parent":          func(b p) { lvol(b)["base_snapshot"] = "c" },
	} {
		w := newWorld(t, true)
		w.change = func(b p) {
			if b["uuid"] == "uuid-b" {
				change(b)
			}
		}
		_, err := w.read("lvs0/c", "lvs0/a")
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "%s: %v", name, err)
	}
	for _, uuid := range []string{"uuid-a", "uuid-b"} {
		w := newWorld(t, true)
		w.missing = uuid
		_, err := w.read("lvs0/c", "")
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), uuid)
	}
	w := newWorld(t, true)
	w.change = func(b p) { lvol(b)["lvol_store_uuid"] = "other" }
	_, err := w.read("lvs0/c", "")
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "another lvstore is on the device")
}

// Missing or contradictory metadata on the device is rejected.
func TestDamagedMetadataIsRejected(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no metadata":         func(w *world) { clear(w.image) },
		"no snapshot":         func(w *world) { clear(blobstoretest.Page(w.image, 3)) },
		"no parent":           func(w *world) { clear(blobstoretest.Page(w.image, 2)) },
		"super block":         func(w *world) { w.image[100]++ },
		"extent page dropped": func(w *world) { clear(blobstoretest.Page(w.image, 9)) },
		"torn page":           func(w *world) { blobstoretest.Page(w.image, 8)[30]++ },
		"shorter device":      func(w *world) { w.image = w.image[:len(w.image)-4096] },
		"another lvstore": func(w *world) {
			w.store.UUID = strings.ToUpper(w.store.UUID)
			w.image = w.store.Image()
			w.store.UUID = strings.ToLower(w.store.UUID)
		},
		"clusters missing": func(w *world) {
			l := w.store.Lvols
			w.store.Lvols = append([]blobstoretest.Lvol{}, l...)
			w.store.Lvols[1].Allocated = []uint64{3}
			w.image = w.store.Image()
			w.store.Lvols = l
		},
		"skipped snapshot": func(w *world) {
			l := w.store.Lvols
			w.store.Lvols = append([]blobstoretest.Lvol{}, l...)
			w.store.Lvols[2].Parent = 1
			w.image = w.store.Image()
			w.store.Lvols = l
		},
		"unfinished removal": func(w *world) { w.store.Lvols[1].Removing = true; w.image = w.store.Image() },
	} {
		w := newWorld(t, false)
		change(w)
		_, err := w.read("uuid-c", "uuid-a")
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "%s: %v", name, err)
	}
	w := newWorld(t, true)
	require.NoError(t, os.Truncate(w.path, int64(len(w.image))-4096))
	_, err := w.read("uuid-c", "uuid-a")
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
}

func TestUnsupportedSnapshotsAreRefused(t *testing.T) {
	w := newWorld(t, true)
	for name, want := range map[string]syscall.Errno{"lvs0/v": syscall.EINVAL, "uuid-v": syscall.EINVAL, "disk7n1": syscall.ENODEV} {
		_, err := w.read(name, "")
		assert.Equal(t, want, errnoOf(t, err), name)
		_, err = w.read("uuid-c", name)
		assert.Equal(t, want, errnoOf(t, err), name)
	}
	_, err := w.read("lvs0/x", "")
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	_, err = w.read("uuid-c", "lvs0/x")
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	for name, change := range map[string]func(w *world){
		"external":      func(w *world) { w.store.Lvols[0].External = true },
		"larger parent": func(w *world) { w.store.Lvols[0].Clusters = 1201 },
	} {
		w := newWorld(t, true)
		change(w)
		w.write(true)
		_, err := w.read("uuid-c", "uuid-b")
		assert.Equal(t, syscall.EINVAL, errnoOf(t, err), name)
		assert.ErrorContains(t, err, "full backup")
	}
	w.change = func(b p) {
		if b["uuid"] == "uuid-a" {
			lvol(b)["lvol_store_uuid"] = "other"
		}
	}
	_, err = w.read("uuid-c", "uuid-a")
	assert.Equal(t, syscall.EINVAL, errnoOf(t, err), "another lvstore")
	w.change = func(b p) { lvol(b)["esnap_clone"] = true }
	_, err = w.read("uuid-a", "")
	assert.Equal(t, syscall.EINVAL, errnoOf(t, err))
}

// For releases that do not report numbers of clusters, changes are read only with the caller's
// consent.
func TestReleasesWithoutClusterCountsRequireConsent(t *testing.T) {
	w := newWorld(t, true)
	w.release, w.change = "v24.01", func(b p) { delete(lvol(b), "num_allocated_clusters") }
	_, err := w.read("uuid-c", "uuid-a")
	assert.Equal(t, syscall.EOPNOTSUPP, errnoOf(t, err))
	assert.ErrorContains(t, err, "target.accept_changes_without_counts")
	accepting := w.target()
	accepting.AcceptUncounted = true
	got, err := new(Reader).Read(t.Context(), accepting, "uuid-c", "uuid-a")
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 700, 1299}, bits(got.Bitmap))
	w.release = "v26.05"
	accepting = w.target()
	accepting.AcceptUncounted = true
	_, err = new(Reader).Read(t.Context(), accepting, "uuid-c", "uuid-a")
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "a release that reports counts must report them")
}

func TestUnreadableDevicesAreRefused(t *testing.T) {
	w := newWorld(t, true)
	w.path += "-not-there"
	_, err := w.read("uuid-c", "")
	assert.Equal(t, syscall.EOPNOTSUPP, errnoOf(t, err))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "docs/backup-volumes.md")
}

// If the last two readings differ, the call fails.
func TestReadFailsIfReadingsDiffer(t *testing.T) {
	w := newWorld(t, false)
	total := 0
	w.reading = func(n int) { total = n }
	_, err := w.read("uuid-c", "uuid-a")
	require.NoError(t, err)
	for n := 2; n <= total; n++ {
		w := newWorld(t, false)
		w.reading = func(now int) {
			if now == n { // b gets a different cluster, which no other check detects
				page := blobstoretest.Page(w.image, 7)
				binary.LittleEndian.PutUint32(page[29:], binary.LittleEndian.Uint32(page[29:])+9)
				blobstoretest.Seal(page)
			}
		}
		_, err := w.read("uuid-c", "uuid-a")
		if n < total {
			require.NoError(t, err, "reading %d of %d", n, total)
			continue
		}
		assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
		assert.ErrorContains(t, err, "two readings differ")
	}
}

// After a restart, SPDK reports a snapshot without clones as a volume, but the metadata on the
// device still marks it as a snapshot.
func TestSnapshotsReportedAsVolumesAreAccepted(t *testing.T) {
	w := newWorld(t, true)
	w.change = func(b p) { lvol(b)["snapshot"] = false }
	got, err := w.read("uuid-c", "uuid-a")
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 700, 1299}, bits(got.Bitmap))
	_, err = w.read("uuid-v", "")
	assert.Equal(t, syscall.EINVAL, errnoOf(t, err))
}

// If a snapshot is deleted while it is being read, the error says that it does not exist. If the
// target ends after the deletion, the error says that, and not that the metadata is damaged.
func TestSnapshotDeletedDuringReadIsNotFound(t *testing.T) {
	for _, want := range []spdkrpc.Kind{spdkrpc.NoSuchDevice, spdkrpc.Unreachable} {
		w := newWorld(t, false)
		w.reading = func(n int) {
			if n == 2 {
				w.missing, w.ended = "uuid-c", want == spdkrpc.Unreachable
				clear(blobstoretest.Page(w.image, 3))
			}
		}
		_, err := w.read("uuid-c", "uuid-a")
		require.ErrorIs(t, err, want)
	}
}

// A deletion that ends during the first read of the chain does not make the call fail.
func TestChainChangeBeforeLockingIsTolerated(t *testing.T) {
	w := newWorld(t, false)
	sound := append([]byte{}, w.image...)
	w.reading = func(n int) {
		if copy(w.image, sound); n == 2 {
			blobstoretest.Page(w.image, 2)[30]++
		}
	}
	got, err := w.read("uuid-c", "uuid-a")
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 700, 1299}, bits(got.Bitmap))
}

// A cached page is verified, because it may belong to another snapshot by now.
func TestCachedPagesAreVerified(t *testing.T) {
	w := newWorld(t, false)
	r := new(Reader)
	_, err := r.Read(t.Context(), w.target(), "uuid-c", "uuid-a")
	require.NoError(t, err)
	reads := w.reads
	_, err = r.Read(t.Context(), w.target(), "uuid-c", "uuid-a")
	require.NoError(t, err)
	assert.Equal(t, reads-2, w.reads-reads, "it searches once")

	l := w.store.Lvols
	l[0], l[2] = l[2], l[0] // swap the pages of a and c
	l[0].Parent, l[1].Parent, l[2].Parent = 2, 3, 0
	w.image = w.store.Image()
	got, err := r.Read(t.Context(), w.target(), "uuid-c", "uuid-a")
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 700, 1299}, bits(got.Bitmap))
}

func TestLockErrorsAreReturned(t *testing.T) {
	w := newWorld(t, true)
	busy := errors.New("busy")
	locking := w.target()
	locking.Lock = func(context.Context, func(context.Context) ([]string, error), func(context.Context) error) error {
		return busy
	}
	_, err := new(Reader).Read(t.Context(), locking, "uuid-c", "")
	require.ErrorIs(t, err, busy)

	// Between the two calls of find, a deletion moves clusters and removes a snapshot from the
	// chain.
	locking.Lock = func(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error {
		if _, err := find(ctx); err != nil {
			return err
		}
		w.store.Lvols[2].Parent, w.store.Lvols[2].Allocated = 1, []uint64{1, 3, 700, 1299}
		w.image = w.store.Image()
		require.NoError(t, os.WriteFile(w.path, w.image, 0o600))
		return do(ctx) // does not call find again
	}
	_, err = new(Reader).Read(t.Context(), locking, "uuid-c", "")
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err), "%v", err)
	require.ErrorIs(t, err, blobstore.ErrMetadata)
}

// Snapshots that exceed the limits are refused before anything is locked.
func TestLimitsAreCheckedBeforeLocking(t *testing.T) {
	refused := errors.New("no memory")
	for name, c := range map[string]struct {
		change  func(w *world)
		reserve error
		check   func(err error)
	}{
		"size": {change: func(w *world) { w.change = func(b p) { b["num_blocks"] = 512 } }, check: func(err error) {
			assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
			assert.ErrorContains(t, err, "bytes in the target")
		}},
		"shrunk": {change: func(w *world) { w.store.Lvols[0].Clusters = 1201; w.write(true) }, check: func(err error) {
			assert.Equal(t, syscall.EINVAL, errnoOf(t, err))
		}},
		"memory": {change: func(*world) {}, reserve: refused, check: func(err error) { assert.ErrorIs(t, err, refused) }},
	} {
		w := newWorld(t, true)
		c.change(w)
		target := w.target()
		reserved := 0
		target.Reserve = func(n int) error { reserved += n; return c.reserve }
		_, err := new(Reader).Read(t.Context(), target, "uuid-b", "uuid-a")
		require.Error(t, err, name)
		c.check(err)
		assert.Empty(t, w.locked, name)
		assert.Equal(t, c.reserve != nil, reserved > 0, name)
	}
}
