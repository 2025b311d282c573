package changes

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
)

// newLargeWorld returns a world with snapshots that take a long time to read: a has 100 extent
// pages, b has 70 and c has 10.
func newLargeWorld(t *testing.T) *world {
	w := newWorld(t, false)
	w.store.Clusters, w.store.MetadataPages = 400, 300
	for i, pages := range []uint64{100, 70, 10, 0} {
		l := &w.store.Lvols[i]
		l.Clusters, l.Allocated = 100*512, nil
		for n := range pages {
			l.Allocated = append(l.Allocated, n*512+uint64(i))
		}
	}
	w.write(false)
	return w
}

// attempt reads the allocated clusters of a snapshot, and interrupts the read after the given
// number of commands sent under locks. It returns the actual number of commands.
func (w *world) attempt(r *Reader, snapshot string, after int) (found *Changes, commands int, err error) {
	target := w.target()
	lock := target.Lock
	target.Lock = func(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error {
		return lock(ctx, find, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			w.command = func() {
				if commands++; commands == after {
					cancel()
				}
			}
			defer func() { w.command = nil }()
			return do(ctx)
		})
	}
	found, err = r.Read(w.t.Context(), target, snapshot, "")
	return found, commands, err
}

const never = 0 // value of after

// A read that is interrupted repeatedly continues each time, and eventually completes, even if a
// snapshot is deleted in the meantime.
func TestInterruptedReadsContinue(t *testing.T) {
	w := newLargeWorld(t)
	want, all, err := w.attempt(new(Reader), "uuid-c", never)
	require.NoError(t, err)
	require.Greater(t, all, 2*180)
	for _, deletion := range []int{0, 2, 5} {
		w, r, attempts := newLargeWorld(t), new(Reader), 0
		for ; ; attempts++ {
			require.Less(t, attempts, 40, "no progress")
			got, _, err := w.attempt(r, "uuid-c", 70)
			if err == nil {
				assert.Equal(t, want.Bitmap, got.Bitmap)
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			if attempts == deletion { // deletes b; c gets b's clusters and b's parent
				l := w.store.Lvols
				l[2].Allocated, l[2].Parent = append(l[2].Allocated, l[1].Allocated...), 1
				w.image, w.missing = w.store.Image(), "uuid-b"
				clear(blobstoretest.Page(w.image, 2))
			}
		}
		assert.Greater(t, attempts, deletion)
		_, again, err := w.attempt(r, "uuid-c", never)
		require.NoError(t, err)
		assert.Greater(t, again, 2*110, "what was read is forgotten when the result is complete")
	}
}

// Data read before an interruption must match what the target reports. Data that does not match is
// dropped, so that a retry can succeed.
func TestContinuedReadsAreVerified(t *testing.T) {
	w, r := newLargeWorld(t), new(Reader)
	_, all, err := w.attempt(new(Reader), "uuid-a", never)
	require.NoError(t, err)
	for range 3 {
		_, _, err = w.attempt(r, "uuid-a", 50)
		require.ErrorIs(t, err, context.Canceled)
	}
	w.change = func(b p) {
		if b["uuid"] == "uuid-a" {
			lvol(b)["num_allocated_clusters"] = 99
		}
	}
	_, _, err = w.attempt(r, "uuid-a", never)
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
	w.change = nil
	found, again, err := w.attempt(r, "uuid-a", never)
	require.NoError(t, err)
	assert.Len(t, bits(found.Bitmap), 100)
	assert.Greater(t, again, all/2)
}

// A search that runs out of time continues at the next read. If the remaining pages do not contain
// the snapshot, the search starts again from the beginning.
func TestInterruptedSearchesContinue(t *testing.T) {
	w := newLargeWorld(t)
	w.store.Lvols[2].Blob = 290
	w.store.Lvols[3].Parent = 0
	w.write(false)
	r := new(Reader)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	commands := 0
	w.command = func() {
		if commands++; commands == 5 {
			cancel()
		}
	}
	_, err := r.Read(ctx, w.target(), "uuid-c", "")
	require.ErrorIs(t, err, context.Canceled)
	key := w.store.UUID + " uuid-c"
	assert.Positive(t, r.searched[key])
	w.command = nil
	_, err = r.Read(t.Context(), w.target(), "uuid-c", "")
	require.NoError(t, err)
	assert.Empty(t, r.searched)

	r = &Reader{searched: map[string]int64{key: 291}}
	_, err = r.Read(t.Context(), w.target(), "uuid-c", "")
	require.NoError(t, err)
}
