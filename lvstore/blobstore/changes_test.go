package blobstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
)

// chained returns an lvstore with four snapshots: a, its child b, b's child c, and a's second child
// d.
func chained() blobstoretest.Store {
	return blobstoretest.Store{
		UUID: "077791f0-2c50-4b9c-884a-d647fd95528c", Name: "lvs0", ClusterSize: 16 << 10, Clusters: 128, MetadataPages: 40,
		Lvols: []blobstoretest.Lvol{
			{UUID: "uuid-a", Name: "a", Clusters: 1200, Allocated: []uint64{0, 3, 600}},
			{UUID: "uuid-b", Name: "b", Clusters: 1200, Parent: 1, Allocated: []uint64{1, 3}},
			{UUID: "uuid-c", Name: "c", Clusters: 1300, Parent: 2, Allocated: []uint64{1299, 700}, Continued: true},
			{UUID: "uuid-d", Name: "d", Clusters: 1250, Parent: 1, Allocated: []uint64{5, 1249}},
			{UUID: "uuid-r", Name: "r", Clusters: 20, Allocated: []uint64{2, 3, 9}, RunLength: true},
			{UUID: "uuid-v", Name: "v", Clusters: 1300, Parent: 3, Allocated: []uint64{8}, Writable: true},
		},
	}
}

const idA, idB, idC, idD, idR, idV = firstID + 1, firstID + 2, firstID + 3, firstID + 4, firstID + 5, firstID + 6

func read(t *testing.T, m image, target, base uint64) (*Reading, error) {
	t.Helper()
	return ReadChanges(t.Context(), m, int64(len(m)), target, base, nil)
}

func bits(b []byte) (list []uint64) {
	for i := range uint64(len(b)) * 8 {
		if b[i/8]>>(i%8)&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}

func TestChangedClustersAreListed(t *testing.T) {
	m := image(chained().Image())
	for name, c := range map[string]struct {
		target, base uint64
		want         []uint64
	}{
		"all clusters of the first snapshot": {idA, 0, []uint64{0, 3, 600}},
		"all clusters of a chain":            {idC, 0, []uint64{0, 1, 3, 600, 700, 1299}},
		"base is the parent":                 {idB, idA, []uint64{1, 3}},
		"base is the grandparent":            {idC, idA, []uint64{1, 3, 700, 1299}},
		"backwards":                          {idA, idC, []uint64{1, 3, 700}},
		"base is in another branch":          {idD, idC, []uint64{1, 3, 5, 700, 1249}},
		"base is the snapshot itself":        {idC, idC, nil},
		"unrelated snapshot":                 {idR, idA, []uint64{0, 2, 3, 9}},
		"unrelated base":                     {idA, idR, []uint64{0, 2, 3, 9, 600}},
		"all clusters, as run lengths":       {idR, 0, []uint64{2, 3, 9}},
		"base is smaller":                    {idB, idD, []uint64{1, 3, 5}},
	} {
		v, err := read(t, m, c.target, c.base)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, bits(v.Changed), name)
		assert.Len(t, v.Changed, int(v.Target[0].Clusters+7)/8, name)
		again, err := read(t, m, c.target, c.base)
		require.NoError(t, err)
		assert.True(t, v.Equal(again), name)
	}
	v, err := read(t, m, idC, idA)
	require.NoError(t, err)
	assert.Equal(t, "077791f0-2c50-4b9c-884a-d647fd95528c", v.StoreUUID)
	assert.Equal(t, "lvs0", v.StoreName)
	var chain []string
	for _, l := range v.Target {
		chain = append(chain, fmt.Sprintln(l.UUID, l.Name, l.Clusters, l.Counted, l.Allocated))
	}
	assert.Equal(t, []string{"uuid-c c 1300 true 2\n", "uuid-b b 1200 true 2\n", "uuid-a a 1200 false 0\n"}, chain)
}

// The beginning of a snapshot is read from the lvol that owns the clusters there.
func TestSnapshotStartIsReadFromItsOwner(t *testing.T) {
	for _, run := range []bool{false, true} {
		s := chained()
		s.Lvols[0].RunLength = run
		s.Lvols[0].Start = append(bytes.Repeat([]byte("a"), 5000), "end"...)
		s.Lvols[4].Clusters, s.Lvols[4].Allocated = 1, nil
		m := image(s.Image())
		v, err := read(t, m, idC, idR)
		require.NoError(t, err)
		assert.Len(t, v.TargetStart, StartBytes)
		assert.Equal(t, string(bytes.Repeat([]byte("a"), 5000))+"end\x00", string(v.TargetStart[:5004]))
		assert.Equal(t, make([]byte, StartBytes), v.BaseStart)
		s.Lvols[1].Allocated, s.Lvols[1].Start = []uint64{0, 1}, []byte("b")
		m = s.Image()
		v, err = read(t, m, idC, idA)
		require.NoError(t, err)
		assert.Equal(t, "b\x00", string(v.TargetStart[:2]))
		assert.Equal(t, "aa", string(v.BaseStart[:2]), "below the common ancestor")
		m[bytes.Index(m, []byte("aaaa"))]++
		again, err := read(t, m, idC, idA)
		require.NoError(t, err)
		assert.False(t, v.Equal(again))
	}
}

// For random chains, the changes match those that a model computes from the content.
func TestChangesInRandomChainsMatchTheModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := chained()
		s.Clusters, s.Lvols = 2000, nil
		var content [][]int // for each lvol, which lvol last wrote each cluster; 0 if none did
		for i := range 2 + r.IntN(8) {
			parent := r.IntN(i + 1)
			l := blobstoretest.Lvol{UUID: fmt.Sprint("uuid-", i), Name: fmt.Sprint(i), Parent: parent, Clusters: uint64(r.IntN(1200)), RunLength: r.IntN(4) == 0, Continued: r.IntN(2) == 0}
			if parent > 0 {
				l.Clusters = s.Lvols[parent-1].Clusters + uint64(r.IntN(2)*r.IntN(600))
			}
			if l.Clusters == 0 {
				l.RunLength = false
			}
			has := make([]int, l.Clusters)
			if parent > 0 {
				copy(has, content[parent-1])
			}
			for k := range has {
				if r.IntN(40) == 0 {
					has[k] = i + 1
					l.Allocated = append(l.Allocated, uint64(k))
				}
			}
			s.Lvols, content = append(s.Lvols, l), append(content, has)
		}
		s.MetadataPages = 80
		m := image(s.Image())
		for range 10 {
			base, target := r.IntN(len(content)), r.IntN(len(content))
			v, err := read(t, m, firstID+1+uint64(target), firstID+1+uint64(base))
			require.NoError(t, err, "seed %d", seed)
			for k, who := range content[target] {
				was := 0
				if k < len(content[base]) {
					was = content[base][k]
				}
				if who != was {
					require.NotZero(t, v.Changed[k/8]>>(k%8)&1, "seed %d, %d to %d, cluster %d", seed, base, target, k)
				}
			}
			all, err := read(t, m, firstID+1+uint64(target), 0)
			require.NoError(t, err)
			for k, who := range content[target] {
				require.Equal(t, who != 0, all.Changed[k/8]>>(k%8)&1 == 1, "seed %d, cluster %d", seed, k)
			}
		}
	}
}

func TestLvolIsFoundByUUID(t *testing.T) {
	s := chained()
	m := image(s.Image())
	for i, l := range s.Lvols {
		id, _, err := Find(t.Context(), m, int64(len(m)), l.UUID, 0)
		require.NoError(t, err)
		assert.EqualValues(t, firstID+1+i, id)
	}
	for _, uuid := range []string{"uuid-x", "", s.UUID} {
		_, _, err := Find(t.Context(), m, int64(len(m)), uuid, 0)
		require.ErrorIs(t, err, ErrNoLvol, uuid)
	}
	p := blobstoretest.Page(m, 2)
	p[20]++
	_, _, err := Find(t.Context(), m, int64(len(m)), "uuid-b", 0)
	require.ErrorIs(t, err, ErrNoLvol, "a page with a wrong checksum is not a result")

	big := chained()
	big.Clusters, big.MetadataPages = 1200, 4000
	m = big.Image()
	copy(blobstoretest.Page(m, 3999), blobstoretest.Page(m, 1))
	clear(blobstoretest.Page(m, 1))
	last := blobstoretest.Page(m, 3999)
	le.PutUint64(last, firstID+3999)
	blobstoretest.Seal(last)
	id, _, err := Find(t.Context(), m, int64(len(m)), "uuid-a", 0)
	require.NoError(t, err)
	assert.EqualValues(t, firstID+3999, id)
}

// A mismatch in the metadata causes an error rather than a shorter list of changes.
func TestDamagedMetadataIsRejected(t *testing.T) {
	page := func(n int64, change func(p []byte)) func(m image) {
		return func(m image) {
			p := blobstoretest.Page(m, n)
			change(p)
			blobstoretest.Seal(p)
		}
	}
	// a has extent pages 7 and 8, b has 9, c has 10 and 11 (its table is on page 12), and d has 13
	// and 14.
	for name, change := range map[string]func(m image){
		"checksum of an extent page":     func(m image) { blobstoretest.Page(m, 10)[30]++ },
		"checksum of a first page":       func(m image) { blobstoretest.Page(m, 2)[3000]++ },
		"checksum of a second page":      func(m image) { blobstoretest.Page(m, 12)[3000]++ },
		"an extent page is empty":        func(m image) { clear(blobstoretest.Page(m, 10)) },
		"an extent page of another part": page(10, func(p []byte) { le.PutUint32(p[21:], 0) }),
		"an extent page of another size": page(11, func(p []byte) { le.PutUint32(p[17:], 4+4*275) }),
		"an extent page that continues":  page(10, func(p []byte) { le.PutUint32(p[PageSize-8:], 11) }),
		"an extent page without list":    page(10, func(p []byte) { p[16] = 0 }),
		"a cluster beyond the end":       page(9, func(p []byte) { le.PutUint32(p[29:], 128) }),
		"a cluster of metadata":          page(9, func(p []byte) { le.PutUint32(p[29:], 10) }),
		"a page of another blob":         page(12, func(p []byte) { le.PutUint64(p, firstID+9) }),
		"a page out of order":            page(12, func(p []byte) { le.PutUint32(p[8:], 2) }),
		"a page that follows itself":     page(12, func(p []byte) { le.PutUint32(p[PageSize-8:], 12) }),
		"a first page that follows":      page(3, func(p []byte) { le.PutUint32(p[PageSize-8:], 3) }),
		"a page out of range":            page(3, func(p []byte) { le.PutUint32(p[PageSize-8:], 40) }),
		"no list of clusters":            page(3, func(p []byte) { le.PutUint32(p[PageSize-8:], noPage) }),
		"the store's page":               func(m image) { blobstoretest.Page(m, 0)[30]++ },
		"a volume instead of the store":  page(0, func(p []byte) { le.PutUint64(p, firstID+1) }),
		"another type of blobstore":      func(m image) { m[56]++; blobstoretest.Seal(m[:PageSize]) },
		"checksum of the super block":    func(m image) { m[100]++ },
		"a larger device":                func(m image) { le.PutUint64(m[80:], uint64(len(m)+1)); blobstoretest.Seal(m[:PageSize]) },
	} {
		m := image(chained().Image())
		change(m)
		_, err := read(t, m, idC, idA)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if !assert.NotErrorIs(t, err, ErrUnsuitable, name) {
			continue
		}
	}
	for name, change := range map[string]func(s *blobstoretest.Store){
		"loop":                                func(s *blobstoretest.Store) { s.Lvols[0].Parent = 2 },
		"its own parent":                      func(s *blobstoretest.Store) { s.Lvols[2].Parent = 3 },
		"missing parent":                      func(s *blobstoretest.Store) { s.Lvols[1].Parent = 30 },
		"out of range":                        func(s *blobstoretest.Store) { s.Lvols[1].Parent = 40 },
		"lvstore":                             func(s *blobstoretest.Store) { s.Lvols[1].Parent = -1 },
		"taking":                              func(s *blobstoretest.Store) { s.Lvols[1].Taking = true },
		"removing":                            func(s *blobstoretest.Store) { s.Lvols[2].Removing = true },
		"an extent page of an older snapshot": func(s *blobstoretest.Store) { s.Lvols[0].Taking = true },
		"missing UUID":                        func(s *blobstoretest.Store) { s.Lvols[2].UUID = "" },
		"missing name":                        func(s *blobstoretest.Store) { s.Lvols[2].Name = "" },
	} {
		s := chained()
		change(&s)
		_, err := read(t, s.Image(), idC, idA)
		assert.ErrorIs(t, err, ErrMetadata, name)
	}
	for name, change := range map[string]func(s *blobstoretest.Store){
		"volume":        func(s *blobstoretest.Store) { s.Lvols[2].Writable = true },
		"external":      func(s *blobstoretest.Store) { s.Lvols[0].External = true },
		"larger parent": func(s *blobstoretest.Store) { s.Lvols[0].Clusters = 1201 },
	} {
		s := chained()
		change(&s)
		_, err := read(t, s.Image(), idC, idA)
		assert.ErrorIs(t, err, ErrUnsuitable, name)
		_, err = read(t, s.Image(), idD, idC)
		assert.ErrorIs(t, err, ErrUnsuitable, name)
	}
	m := image(chained().Image())
	for _, id := range []uint64{firstID, firstID - 1, firstID + 40, 5, 1 << 63} {
		_, err := read(t, m, id, 0)
		assert.ErrorIs(t, err, ErrMetadata)
		_, err = read(t, m, idA, id)
		assert.ErrorIs(t, err, ErrMetadata)
	}
}

func TestReadChangesFailsIfAReadFails(t *testing.T) {
	m := image(chained().Image())
	for at := 1; ; at++ {
		f := &failing{image: m, at: at}
		_, err := ReadChanges(t.Context(), &serial{r: f}, int64(len(m)), idC, idD, nil)
		if f.reads < at {
			require.NoError(t, err)
			require.Greater(t, at, 8)
			break
		}
		require.ErrorIs(t, err, errRead, "read %d", at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ReadChanges(ctx, m, int64(len(m)), idC, 0, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = Find(ctx, m, int64(len(m)), "uuid-a", 0)
	require.ErrorIs(t, err, context.Canceled)
}

// If any page changes between two readings, the readings are not equal.
func TestReadingsOfChangedPagesDiffer(t *testing.T) {
	m := image(chained().Image())
	first, err := read(t, m, idC, idA)
	require.NoError(t, err)
	for _, n := range []int64{0, 1, 2, 3, 9, 10, 11, 12} {
		changed := append(image{}, m...)
		p := blobstoretest.Page(changed, n)
		p[PageSize-20]++ // a byte after the last descriptor
		blobstoretest.Seal(p)
		second, err := read(t, changed, idC, idA)
		require.NoError(t, err, "page %d", n)
		assert.False(t, first.Equal(second), "page %d", n)
	}
}

func FuzzReadChanges(f *testing.F) {
	f.Add(uint32((firstMetadataPage+1)*PageSize+16), []byte{5, 0xff, 0xff}, uint8(3), uint8(1))
	f.Add(uint32((firstMetadataPage+3)*PageSize+4088), []byte{3}, uint8(3), uint8(4))
	f.Fuzz(func(t *testing.T, at uint32, b []byte, target, base uint8) {
		m := image(chained().Image())
		if int(at) >= len(m) {
			t.Skip()
		}
		copy(m[at:], b)
		for n := range int64(firstMetadataPage + 40) {
			if p := m[n*PageSize:][:PageSize]; n == 0 || !(*page)(p).zero() {
				blobstoretest.Seal(p)
			}
		}
		v, err := read(t, m, firstID+uint64(target), firstID+uint64(base))
		if err == nil {
			assert.LessOrEqual(t, len(v.Changed), MaxClusters/8)
		}
		_, _, _ = Find(t.Context(), m, int64(len(m)), "uuid-c", 0)
	})
}

// firstMetadataPage is the position of the first metadata page on the device, in pages.
const firstMetadataPage = blobstoretest.MetadataStart

// serial is a device that serves one read at a time.
type serial struct {
	mu sync.Mutex
	r  io.ReaderAt
}

func (s *serial) ReadAt(b []byte, at int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.ReadAt(b, at)
}
