package blobstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
)

func TestMemoryDoesNotDependOnRecordedSizes(t *testing.T) {
	m := image(chained().Image())
	big := func(p []byte, n uint64) {
		at := 16
		for p[at] != extentTable {
			at += 5 + int(le.Uint32(p[at+1:]))
		}
		le.PutUint64(p[at+5:], n)
		blobstoretest.Seal(p)
	}
	big(blobstoretest.Page(m, 1), MaxClusters+1)
	_, err := read(t, m, idA, 0)
	require.ErrorIs(t, err, ErrUnsuitable)
	big(blobstoretest.Page(m, 1), MaxClusters)
	_, err = read(t, m, idA, 0)
	require.ErrorIs(t, err, ErrMetadata, "the table has fewer pages")

	s := chained()
	s.Lvols[4].Allocated = nil
	m = s.Image()
	p := blobstoretest.Page(m, 5)
	at := 16
	for p[at] != extentRuns {
		at += 5 + int(le.Uint32(p[at+1:]))
	}
	le.PutUint32(p[at+9:], 1<<32-1)
	blobstoretest.Seal(p)
	_, err = read(t, m, idR, 0)
	require.ErrorIs(t, err, ErrUnsuitable)

	s = chained()
	s.Lvols, s.MetadataPages, s.Clusters = nil, 400, 400
	for i := range maxChain + 1 {
		s.Lvols = append(s.Lvols, blobstoretest.Lvol{UUID: "u", Name: "n", Clusters: 1, Parent: i})
	}
	m = s.Image()
	_, err = read(t, m, firstID+maxChain, 0)
	require.NoError(t, err)
	_, err = read(t, m, firstID+maxChain+1, 0)
	require.ErrorIs(t, err, ErrMetadata)
}

// Hostile metadata is rejected before its lists of clusters consume much memory or time.
func TestCostOfHostileMetadataIsLimited(t *testing.T) {
	entry := func(p []byte, clusters uint64, page, count uint32) {
		at := 16
		for p[at] != extentTable {
			at += 5 + int(le.Uint32(p[at+1:]))
		}
		require.EqualValues(t, 16, le.Uint32(p[at+1:]))
		le.PutUint64(p[at+5:], clusters)
		le.PutUint32(p[at+13:], page)
		le.PutUint32(p[at+17:], count)
		blobstoretest.Seal(p)
	}
	chain := func(n int, clusters uint64) image {
		s := chained()
		s.Lvols, s.MetadataPages, s.Clusters = nil, 400, 400
		for i := range n {
			s.Lvols = append(s.Lvols, blobstoretest.Lvol{UUID: fmt.Sprint("u", i), Name: "n", Clusters: 1, Parent: i})
		}
		m := image(s.Image())
		for i := range n {
			entry(blobstoretest.Page(m, int64(i+1)), clusters, 0, uint32(clusters/perExtent))
		}
		return m
	}
	const most = maxEntries * perExtent / MaxClusters // snapshots of the largest size
	v, err := ReadChains(t.Context(), chain(most, MaxClusters), 400*16<<10, firstID+most, 0)
	require.NoError(t, err)
	assert.Less(t, v.Memory(), 32<<20)
	_, err = ReadChains(t.Context(), chain(most+1, MaxClusters), 400*16<<10, firstID+most+1, 0)
	require.ErrorIs(t, err, ErrUnsuitable)

	// An extent table with more entries than MaxClusters requires uses no additional memory.
	m := chain(1, 1)
	entry(blobstoretest.Page(m, 1), 1<<32, 0, 1<<32/perExtent)
	assert.Less(t, testing.AllocsPerRun(1, func() {
		b := &blob{attrs: map[string]string{}, bounded: true}
		require.NoError(t, b.add((*page)(blobstoretest.Page(m, 1)), firstID+1, 0))
		assert.Zero(t, b.entries())
	}), 1000.0)

	// Here, all entries of a table refer to the same page, or all runs refer to the same clusters.
	s := chained()
	s.Lvols[4].Allocated = nil
	m = s.Image()
	runs := blobstoretest.Page(m, 5)
	at := 16
	for runs[at] != extentRuns {
		at += 5 + int(le.Uint32(runs[at+1:]))
	}
	le.PutUint32(runs[at+5:], 60)
	le.PutUint32(runs[at+9:], MaxClusters)
	blobstoretest.Seal(runs)
	v, err = ReadChains(t.Context(), m, int64(len(m)), idR, 0)
	require.NoError(t, err)
	require.ErrorIs(t, v.Suitable(false), ErrMetadata)
	require.ErrorContains(t, v.Suitable(false), "more than the lvstore")

	v = &Reading{Super: Super{MetadataPages: maxExtentPages + 1, ClusterSize: 1}, Target: []*Lvol{{Clusters: MaxClusters, blob: &blob{readOnly: true, table: slices.Repeat([]uint32{7}, maxExtentPages)}}}}
	require.NoError(t, v.Suitable(false))
	v.Target[0].blob.table = append(v.Target[0].blob.table, 0, 7)
	require.ErrorIs(t, v.Suitable(false), ErrUnsuitable)
	v.Super.MetadataPages = maxExtentPages
	require.ErrorIs(t, v.Suitable(false), ErrMetadata)
}
