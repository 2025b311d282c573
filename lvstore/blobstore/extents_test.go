package blobstore

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
)

// large returns an lvstore with a snapshot of 100 extent pages, two later snapshots of 70 and 10
// pages, and a volume of 40 pages.
func large() blobstoretest.Store {
	s := blobstoretest.Store{UUID: "077791f0-2c50-4b9c-884a-d647fd95528c", Name: "lvs0", ClusterSize: 16 << 10, Clusters: 400, MetadataPages: 300}
	for i, pages := range []uint64{100, 70, 10, 40} {
		l := blobstoretest.Lvol{UUID: string(rune('a' + i)), Name: string(rune('a' + i)), Clusters: 100 * perExtent, Parent: i, Writable: i == 3}
		for n := range pages {
			l.Allocated = append(l.Allocated, n*perExtent+uint64(i))
		}
		s.Lvols = append(s.Lvols, l)
	}
	return s
}

// A counter counts reads of metadata pages, and cancels the context after a given number of reads.
type counter struct {
	image
	reads  atomic.Int64
	after  int64 // 0 means never
	cancel context.CancelFunc
}

func (c *counter) ReadAt(b []byte, at int64) (int, error) {
	if c.reads.Add(1) == c.after {
		c.cancel()
	}
	return c.image.ReadAt(b, at)
}

// attempt reads the changes from a to target, and is canceled after the given number of reads.
func attempt(t *testing.T, m image, e *Extents, target uint64, after int64) (v *Reading, reads int64, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &counter{image: m, after: after, cancel: cancel}
	v, err = ReadChanges(ctx, c, int64(len(m)), target, 0, e.Kept("disk"))
	return v, c.reads.Load(), err
}

// However often a read is interrupted, the next read continues where it stopped, and the result is
// the same as without interruptions.
func TestInterruptedReadContinues(t *testing.T) {
	m := image(large().Image())
	want, all, err := attempt(t, m, new(Extents), idC, 0)
	require.NoError(t, err)
	require.Greater(t, all, int64(180))
	var e Extents
	const each = 40 // fewer than the number of a's extent pages
	attempts := 0
	for ; ; attempts++ {
		require.Less(t, attempts, 20, "no progress")
		got, _, err := attempt(t, m, &e, idC, each)
		if err == nil {
			assert.True(t, want.Equal(got))
			assert.Equal(t, want.Target[0].Allocated, got.Target[0].Allocated)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Greater(t, attempts, 2)
	_, again, err := attempt(t, m, &e, idC, 0)
	require.NoError(t, err)
	assert.Less(t, again, int64(30), "only the other pages are read again")

	k := e.Kept("disk")
	_, err = ReadChanges(t.Context(), m, int64(len(m)), idC, 0, k)
	require.NoError(t, err)
	k.Forget()
	_, again, err = attempt(t, m, &e, idC, 0)
	require.NoError(t, err)
	assert.Equal(t, all, again, "they were forgotten")
}

// If SPDK has moved the clusters of a deleted snapshot to another snapshot, that snapshot's extent
// pages are read again. So are the extent pages of another device.
func TestCachedExtentsAreDroppedAfterChanges(t *testing.T) {
	s := large()
	m := image(s.Image())
	var e Extents
	_, all, err := attempt(t, m, &e, idC, 0)
	require.NoError(t, err)
	_, err = ReadChanges(t.Context(), m, int64(len(m)), idC, 0, e.Kept("other"))
	require.NoError(t, err)
	c := &counter{image: m}
	_, err = ReadChanges(t.Context(), c, int64(len(m)), idC, 0, e.Kept("third"))
	require.NoError(t, err)
	assert.Equal(t, all, c.reads.Load())

	// After the deletion of b, c has b's clusters, partly on the same pages, and b's parent.
	s.Lvols[2].Parent = 1
	s.Lvols[2].Allocated = append(append([]uint64{}, s.Lvols[2].Allocated...), s.Lvols[1].Allocated...)
	m = s.Image()
	want, err := read(t, m, idC, 0)
	require.NoError(t, err)
	got, reads, err := attempt(t, m, &e, idC, 0)
	require.NoError(t, err)
	assert.True(t, want.Equal(got))
	assert.Less(t, reads, all-90, "those of a are remembered")
	assert.Greater(t, reads, int64(70))
}

// A volume's clusters can change without any change to the volume's other pages.
func TestExtentsOfVolumesAreNotCached(t *testing.T) {
	m := image(large().Image())
	var e Extents
	const idVolume = firstID + 4
	var reads [2]int64
	for i := range reads {
		c := &counter{image: m}
		_, err := ReadVolumeChanges(t.Context(), c, int64(len(m)), idVolume, 0, e.Kept("disk"))
		require.NoError(t, err)
		reads[i] = c.reads.Load()
	}
	assert.EqualValues(t, 180, reads[0]-reads[1], "only those of the snapshots are remembered")
}

// The number of cached pages is limited. The least recently used lvols are removed first.
func TestCachedExtentsAreLimited(t *testing.T) {
	var e Extents
	lvol := func(n byte) *Lvol { return &Lvol{blob: &blob{readOnly: true}, heads: [32]byte{n}} }
	put := func(n byte, count int) *Kept {
		k := e.Kept("disk")
		for i := range count {
			k.get(lvol(n), i)
			k.put(lvol(n), i, &extent{})
		}
		return k
	}
	put(1, maxKept/2)
	put(2, maxKept/4)
	e.Kept("disk").get(lvol(1), 0)
	put(3, maxKept/2)
	assert.LessOrEqual(t, e.pages, maxKept)
	k := e.Kept("disk")
	assert.NotNil(t, k.get(lvol(1), 0))
	assert.Nil(t, k.get(lvol(2), 0))
	assert.NotNil(t, k.get(lvol(3), maxKept/2-1))

	k = put(4, maxKept+1)
	assert.Equal(t, maxKept, e.pages)
	assert.Len(t, e.lvols, 1)
	assert.NotNil(t, k.get(lvol(4), maxKept-1))
	assert.Nil(t, k.get(lvol(4), maxKept))
	k.Forget()
	assert.Zero(t, e.pages)
	assert.Empty(t, e.lvols)
}

// An interrupted search for an lvol continues where it stopped.
func TestInterruptedSearchContinues(t *testing.T) {
	s := large()
	s.Lvols, s.MetadataPages = append(make([]blobstoretest.Lvol, 0), s.Lvols[0]), 290
	s.Lvols[0].Blob = 280
	m := image(s.Image())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, searched, err := Find(ctx, &counter{image: m, after: 2, cancel: cancel}, int64(len(m)), "a", 0)
	require.ErrorIs(t, err, context.Canceled)
	assert.EqualValues(t, 64, searched)
	id, _, err := Find(t.Context(), m, int64(len(m)), "a", searched)
	require.NoError(t, err)
	assert.EqualValues(t, firstID+280, id)
	_, _, err = Find(t.Context(), m, int64(len(m)), "a", 281)
	require.ErrorIs(t, err, ErrNoLvol)
}
