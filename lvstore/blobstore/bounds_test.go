package blobstore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each field of the super block accepts its minimum and maximum, and nothing outside that range.
func TestSuperBlockFieldBoundsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m image)
		ok     bool
	}{
		"version 0":                        {func(m image) { le.PutUint32(m[8:], 0) }, false},
		"version 1":                        {func(m image) { le.PutUint32(m[8:], 1) }, true},
		"version 3":                        {func(m image) { le.PutUint32(m[8:], 3) }, true},
		"version 4":                        {func(m image) { le.PutUint32(m[8:], 4) }, false},
		"page size of an older release":    {func(m image) { le.PutUint32(m[92:], 0) }, true},
		"page size of 1 byte":              {func(m image) { le.PutUint32(m[92:], 1) }, false},
		"metadata from page 0":             {func(m image) { le.PutUint32(m[48:], 0) }, false},
		"metadata from page 1":             {func(m image) { le.PutUint32(m[48:], 1) }, true},
		"no metadata":                      {func(m image) { le.PutUint32(m[52:], 0) }, false},
		"one page of metadata":             {func(m image) { le.PutUint32(m[52:], 1) }, true},
		"clusters of one page":             {func(m image) { le.PutUint32(m[28:], PageSize) }, true},
		"clusters of 0 bytes":              {func(m image) { le.PutUint32(m[28:], 0) }, false},
		"clusters of 1.5 pages":            {func(m image) { le.PutUint32(m[28:], PageSize*3/2) }, false},
		"clusters of half a page":          {func(m image) { le.PutUint32(m[28:], PageSize/2) }, false},
		"negative size":                    {func(m image) { le.PutUint64(m[80:], 1<<63) }, false},
		"size of 0 bytes":                  {func(m image) { le.PutUint64(m[80:], 0) }, true},
		"size of 1 byte":                   {func(m image) { le.PutUint64(m[80:], 1) }, true},
		"size of the device":               {func(m image) {}, true},
		"one byte more than the device":    {func(m image) { le.PutUint64(m[80:], clusters*clusterSize+1) }, false},
		"metadata up to the device's end":  {func(m image) { le.PutUint32(m[52:], clusters*clusterSize/PageSize-metadataStart) }, true},
		"metadata beyond the device's end": {func(m image) { le.PutUint32(m[52:], clusters*clusterSize/PageSize-metadataStart+1) }, false},
		"lvstore page at the device's end": {func(m image) { le.PutUint64(m[20:], firstID+metadataPages-1) }, true},
	} {
		m := newImage()
		c.change(m)
		m.sum()
		_, err := Check(t.Context(), m, int64(len(m)), Options{Quick: true})
		if c.ok {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, ErrSuperBlock, name)
		}
	}
	for clean, want := range map[uint32]bool{0: false, 1: true, 2: false} {
		m := newImage()
		le.PutUint32(m[16:], clean)
		m.sum()
		s, err := ReadSuper(m)
		require.NoError(t, err)
		assert.Equal(t, want, s.Clean)
	}
	m := newImage()
	copy(m[56:], "0123456789abcdefX")
	m.sum()
	s, err := ReadSuper(m)
	require.NoError(t, err)
	assert.Equal(t, Super{
		Version: 3, SuperBlob: firstID, ClusterSize: clusterSize, MetadataStart: metadataStart, MetadataPages: metadataPages, Type: "0123456789abcdef", Bytes: clusters * clusterSize, RecordsPageSize: true,
	}, s)
	le.PutUint32(m[92:], 0)
	m.sum()
	s, err = ReadSuper(m)
	require.NoError(t, err)
	assert.False(t, s.RecordsPageSize)
	le.PutUint64(m[80:], 0)
	m.sum()
	r, err := Check(t.Context(), m, int64(len(m)), Options{})
	require.NoError(t, err)
	assert.EqualValues(t, len(m), r.Super.Bytes, "the whole device")
}

// The id of the blob that describes the lvstore must refer to an existing page.
func TestSuperBlobOutOfRangeIsRejected(t *testing.T) {
	for id, says := range map[uint64]string{firstID - 1: "out of range", firstID + metadataPages: "out of range", firstID + metadataPages - 1: "is empty", 0: "out of range"} {
		m := newImage()
		le.PutUint64(m[20:], id)
		m.sum()
		r := check(t, m, Options{Quick: true})
		require.Len(t, r.Findings, 1)
		assert.Contains(t, r.Findings[0].What, says)
		if says == "out of range" {
			assert.Equal(t, Finding{Page: 0, Offset: metadataStart * PageSize, What: r.Findings[0].What}, r.Findings[0])
		}
	}
}

// Each type of blob descriptor is accepted only with a valid length.
func TestDescriptorLengthsAreChecked(t *testing.T) {
	table := func(n uint64, pairs ...uint32) descriptor {
		data := le.AppendUint64(nil, n)
		for _, p := range pairs {
			data = le.AppendUint32(data, p)
		}
		return descriptor{extentTable, data}
	}
	attribute := func(name, value uint16, length int) descriptor {
		return descriptor{xattr, append(le.AppendUint16(le.AppendUint16(nil, name), value), make([]byte, length)...)}
	}
	for i, c := range []struct {
		d  descriptor
		ok bool
	}{
		{descriptor{xattr, nil}, false}, {descriptor{xattr, make([]byte, 3)}, false}, {descriptor{xattr, make([]byte, 4)}, true},
		{attribute(1, 2, 3), true}, {attribute(1, 2, 2), false}, {attribute(1, 2, 4), false}, {descriptor{internalXattr, make([]byte, 5)}, false},
		{descriptor{extentRuns, nil}, true}, {descriptor{extentRuns, make([]byte, 7)}, false}, {descriptor{extentRuns, make([]byte, 8)}, true}, {descriptor{extentRuns, make([]byte, 9)}, false},
		{descriptor{extentTable, nil}, false}, {descriptor{extentTable, make([]byte, 7)}, false}, {descriptor{extentTable, make([]byte, 12)}, false}, {table(0), true},
		{table(1<<32 + 1), false}, {table(1 << 32), true},
		{table(perExtent, 3, 1), true}, {table(perExtent, 3, 0), false}, {table(perExtent, 3, 2), false}, {table(perExtent, 0, 2), true}, {table(perExtent, 0, 3), false},
		{table(perExtent-1, 3, 1), true}, {table(perExtent-1, 3, 1, 4, 1), false}, {table(perExtent, 3, 1, 4, 1), true}, {table(perExtent, 3, 1, 4, 1, 5, 1), false},
		{descriptor{flags, make([]byte, 24)}, true}, {descriptor{padding, make([]byte, 2)}, true}, {descriptor{extentPage, make([]byte, 8)}, false}, {descriptor{7, nil}, false},
	} {
		b := blob{attrs: map[string]string{}}
		assert.Equal(t, c.ok, b.parse(c.d) == nil, "%d: type %d, % x", i, c.d.kind, c.d.data)
	}
	b := blob{attrs: map[string]string{}}
	require.NoError(t, b.parse(table(3*perExtent, 7, 1, 0, 2)))
	assert.Equal(t, []uint32{7, 0, 0}, b.table)
	require.NoError(t, b.parse(descriptor{extentRuns, le.AppendUint32(le.AppendUint32(nil, 5), 6)}))
	assert.Equal(t, []run{{5, 6}}, b.runs)
}

// Descriptors can fill a page except for its last eight bytes.
func TestDescriptorsMayFillAPage(t *testing.T) {
	const room = PageSize - 8 - 16
	var p page
	copy(p[16:], desc(flags, bytes.Repeat([]byte{1}, room-5)))
	list, err := p.descriptors()
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Len(t, list[0].data, room-5)
	copy(p[16:], desc(flags, make([]byte, room-4))[:6])
	_, err = p.descriptors()
	require.ErrorContains(t, err, fmt.Sprintf("type 3 has %d bytes, but only %d are left", room-4, room-5))

	p = page{}
	copy(p[16:], append(desc(flags, bytes.Repeat([]byte{1}, room-10)), desc(xattr, nil)...))
	list, err = p.descriptors()
	require.NoError(t, err)
	assert.Equal(t, []byte{flags, xattr}, []byte{list[0].kind, list[1].kind}, "the last one has no data")

	p = page{}
	copy(p[16:], append(desc(padding, []byte{9}), desc(xattr, []byte{8})...))
	list, err = p.descriptors()
	require.NoError(t, err)
	assert.Equal(t, []descriptor{{padding, []byte{9}}, {xattr, []byte{8}}}, list, "padding with data does not end the page")

	for n, ok := range map[int]bool{0: false, 3: false, 4: true, 7: false, 8: true} {
		p = page{}
		copy(p[16:], desc(extentPage, bytes.Repeat([]byte{1}, n)))
		first, list, err := p.extents()
		assert.Equal(t, ok, err == nil, "%d bytes", n)
		if ok {
			assert.EqualValues(t, 0x01010101, first)
			assert.Len(t, list, n/4-1)
		} else {
			assert.Zero(t, first)
		}
	}
	p = page{}
	copy(p[16:], append(desc(extentPage, make([]byte, 8)), desc(extentPage, make([]byte, 8))...))
	_, _, err = p.extents()
	require.Error(t, err, "two descriptors")
}

// passes is a device that changes between two passes, and counts them.
type passes struct {
	image
	n     int
	after func(m image, pass int)
}

func (p *passes) ReadAt(b []byte, at int64) (int, error) {
	if at == 0 {
		p.after(p.image, p.n)
		p.n++
	}
	return p.image.ReadAt(b, at)
}

// An undamaged device is read once; a damaged device is read as often as the options specify. Even
// damage to the super block can disappear between two passes.
func TestDamagedDevicesAreReadRepeatedly(t *testing.T) {
	damaged := func(m image) { m.extent(1, 4, 0, 10) }
	run := func(m image, o Options, after func(image, int)) (*passes, Report, error) {
		p := &passes{image: m, after: after}
		r, err := Check(t.Context(), p, int64(len(m)), o)
		return p, r, err
	}
	nothing := func(image, int) {}
	p, _, err := run(newImage(), Options{Passes: 3}, nothing)
	require.NoError(t, err)
	assert.Equal(t, 1, p.n)
	for _, n := range []int{0, 1, 2, 3} {
		m := newImage()
		damaged(m)
		p, r, err := run(m, Options{Passes: n}, nothing)
		require.NoError(t, err)
		assert.Equal(t, max(1, n), p.n)
		assert.NotEmpty(t, r.Findings)
	}
	m := newImage()
	m[100]++
	p, _, err = run(m, Options{Passes: 3}, nothing)
	require.ErrorIs(t, err, ErrSuperBlock)
	assert.Equal(t, 3, p.n)
	p, r, err := run(m, Options{Passes: 3}, func(m image, pass int) {
		if pass == 1 {
			m[100]--
			damaged(m)
		}
	})
	require.NoError(t, err, "the target was writing the super block")
	assert.Equal(t, 3, p.n)
	assert.NotEmpty(t, r.Findings, "all passes that could read the super block found it")
	p, _, err = run(make(image, 1<<20), Options{Passes: 3}, nothing)
	require.ErrorIs(t, err, ErrNoBlobstore)
	assert.Equal(t, 1, p.n)
	m = newImage()
	damaged(m)
	p, r, err = run(m, Options{Passes: 3}, func(m image, pass int) {
		if pass == 1 {
			copy(m, newImage())
		}
	})
	require.NoError(t, err)
	assert.Empty(t, r.Findings)
	assert.Equal(t, 2, p.n, "a sound pass is the last one")
}

// Metadata is read in parts. The number of parts does not affect the result.
func TestMetadataOfAnyLengthIsRead(t *testing.T) {
	for _, pages := range []uint32{1, 255, 256, 257, 511, 512, 513} {
		m := append(newImage(), make(image, 4<<20)...)
		clear(m[(metadataStart+1)*PageSize:])
		le.PutUint32(m[52:], pages)
		le.PutUint64(m[80:], uint64(len(m)))
		m.sum()
		if pages > 1 {
			m.page(int64(pages-1), 0, noPage, attr(xattr, "uuid", "last\x00"))
		}
		r := check(t, m, Options{})
		assert.Empty(t, r.Findings)
		assert.EqualValues(t, pages, r.Pages)
		assert.Len(t, r.Allocated, min(1, int(pages)-1), "the last page is read")
	}
}

// The first data cluster is the first cluster that metadata does not fill completely.
func TestFirstDataClusterFollowsTheMetadata(t *testing.T) {
	for cluster, ok := range map[uint32]bool{1: false, 2: false, 3: false, 4: true, clusters - 1: true, clusters: false} {
		m := newImage() // metadata ends after 64 pages (four clusters)
		m.extent(1, 3, 0, cluster)
		r := check(t, m, Options{})
		assert.Equal(t, ok, len(r.Findings) == 0, "cluster %d: %v", cluster, r.Findings)
		want := uint64(0)
		if ok {
			want = 1
		}
		assert.Equal(t, want, r.Allocated["uuid-v"])
	}
}

func TestNumberOfFindingsIsLimited(t *testing.T) {
	m := newImage()
	var list []uint32
	for range 200 {
		list = append(list, clusters)
	}
	m.extent(1, 3, 0, list...)
	assert.Len(t, check(t, m, Options{}).Findings, 100)
}

func TestLvstoreNamesAreRead(t *testing.T) {
	s := Super{SuperBlob: firstID, MetadataStart: 7, MetadataPages: 1}
	const uuid = "07779170-2c50-4b9c-884a-d647fd95528c"
	for n, ok := range map[int]bool{0: false, 1: true, 63: true, 64: false} {
		content, at, err := SuperPage(s, uuid, strings.Repeat("x", n))
		assert.Equal(t, ok, err == nil, "%d bytes", n)
		assert.Equal(t, ok, content != nil)
		if !ok {
			assert.Zero(t, at)
		}
	}
	s.SuperBlob++
	_, _, err := SuperPage(s, uuid, "x")
	require.Error(t, err)
}
