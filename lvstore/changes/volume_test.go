package changes

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The allocated clusters of a volume include those of its ancestors down to the base. The metadata
// of volumes is checked like that of snapshots.
func TestAllocatedClustersIncludeThoseOfAncestors(t *testing.T) {
	for _, onFile := range []bool{true, false} {
		w := newWorld(t, onFile)
		for name, want := range map[string][]int{"uuid-v": {0, 1, 3, 8, 600, 700, 1299}, "lvs0/v": {0, 1, 3, 8, 600, 700, 1299}, "uuid-b": {0, 1, 3, 600}} {
			got, err := new(Reader).ReadVolume(t.Context(), w.target(), name, "")
			require.NoError(t, err, name)
			assert.Equal(t, want, bits(got.Bitmap), name)
		}
		assert.Contains(t, w.locked[len(w.locked)-1], "lvs0/a")
		for base, want := range map[string][]int{"uuid-c": {8}, "lvs0/b": {8, 700, 1299}, "uuid-a": {1, 3, 8, 700, 1299}} {
			got, err := new(Reader).ReadVolume(t.Context(), w.target(), "uuid-v", base)
			require.NoError(t, err, base)
			assert.Equal(t, want, bits(got.Bitmap), base)
			assert.True(t, got.Counted)
		}
		_, err := new(Reader).ReadVolume(t.Context(), w.target(), "uuid-c", "uuid-v")
		assert.Equal(t, syscall.EINVAL, errnoOf(t, err), "a volume is no base")
	}
	for name, c := range map[string]struct {
		change func(w *world)
		want   syscall.Errno
	}{
		"a cluster is missing on the device": {func(w *world) { w.change = func(b p) { lvol(b)["num_allocated_clusters"] = 4 } }, syscall.EBADMSG},
		"external":                           {func(w *world) { w.store.Lvols[0].External = true; w.write(true) }, syscall.EINVAL},
		"shrunk":                             {func(w *world) { w.store.Lvols[3].Clusters = 1200; w.write(true) }, syscall.EINVAL},
		"its parent is a volume":             {func(w *world) { w.store.Lvols[1].Writable = true; w.write(true) }, syscall.EINVAL},
		"a snapshot is being taken":          {func(w *world) { w.store.Lvols[3].Taking = true; w.write(true) }, syscall.EBADMSG},
		"old release":                        {func(w *world) { w.release = "v24.01" }, syscall.EOPNOTSUPP},
	} {
		w := newWorld(t, true)
		c.change(w)
		_, err := new(Reader).ReadVolume(t.Context(), w.target(), "uuid-v", "")
		assert.Equal(t, c.want, errnoOf(t, err), "%s: %v", name, err)
	}
}

// Hosts can write to a volume while its clusters are being read. A write that allocates a cluster
// makes the read fail; a write that only changes content does not.
func TestAllocationDuringReadFailsTheRead(t *testing.T) {
	w := newWorld(t, false)
	w.store.ClusterSize, w.store.Lvols[0].Start = 32<<10, []byte("content")
	w.write(false)
	readings := 0
	w.reading = func(n int) {
		readings = n
		at := bytes.Index(w.image, []byte("ontent"))
		w.image[at-1]++
	}
	got, err := new(Reader).ReadVolume(t.Context(), w.target(), "uuid-v", "")
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 3, 8, 600, 700, 1299}, bits(got.Bitmap))
	last := readings
	_, err = w.read("uuid-a", "")
	require.ErrorContains(t, err, "two readings differ", "a snapshot's content does not change")

	w = newWorld(t, false)
	w.reading = func(n int) {
		if n == last {
			w.store.Lvols[3].Allocated = []uint64{8, 9}
			w.image = w.store.Image()
		}
	}
	_, err = new(Reader).ReadVolume(t.Context(), w.target(), "uuid-v", "")
	assert.Equal(t, syscall.EBADMSG, errnoOf(t, err))
}
