package blobstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func check(t *testing.T, m image, o Options) Report {
	t.Helper()
	r, err := Check(t.Context(), m, int64(len(m)), o)
	require.NoError(t, err)
	return r
}

func TestIntactLvstoreHasNoFindings(t *testing.T) {
	r := check(t, newImage(), Options{})
	assert.Empty(t, r.Findings)
	assert.EqualValues(t, metadataPages, r.Pages)
	assert.Equal(t, 3, r.Blobs)
	assert.Equal(t, map[string]uint64{"uuid-v": 2, "uuid-s": 1, "uuid-t": 3}, r.Allocated)
	assert.Equal(t, lvstoreType, r.Super.Type)
	r = check(t, newImage(), Options{Quick: true})
	assert.Empty(t, r.Findings)
	assert.EqualValues(t, 1, r.Pages)
}

func TestDamageIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(m image)
		want   string // part of the first finding's text
		page   int64
	}{
		{"an unprotected snapshot", func(m image) { m.extent(1, 0, 0, 30) }, "overwritten by an extent page of blob 0x100000001", 0},
		{"an empty first page", func(m image) { clear(m[metadataStart*PageSize:][:PageSize]) }, "is empty", 0},
		{"another blob's page", func(m image) { m.write(0, firstID+9, 0, noPage, nil) }, "page 0 of blob 0x100000009", 0},
		{"a torn first page", func(m image) { m[metadataStart*PageSize+100]++ }, "wrong checksum", 0},
		{"a torn second page", func(m image) { m[(metadataStart+6)*PageSize+100]++ }, `this page must be page 1 of "t"`, 6},
		{"a lost extent page", func(m image) { clear(m[(metadataStart+3)*PageSize:][:PageSize]) }, `must be extent page 0 of "v"`, 3},
		{"an extent page with a wrong first cluster", func(m image) { m.extent(1, 3, 512, 10) }, `must be extent page 0 of "v"`, 3},
		{"an extent page of a smaller snapshot", func(m image) {
			m.write(4, firstID+2, 0, noPage, desc(extentPage, le.AppendUint32(make([]byte, 4), 12)))
		}, `extent page 0 of "s" (blob 0x100000002) describes 1 clusters, but must describe 512`, 4},
		{"an extent page of two blobs", func(m image) { m.page(2, 0, noPage, attr(xattr, "name", "s\x00"), table(600, 3)) }, `both of "v" (blob 0x100000001) and of "s"`, 3},
		{"a cluster of two blobs", func(m image) { m.extent(1, 4, 0, 10) }, `cluster 10 belongs both to "v"`, 4},
		{"a cluster of the metadata", func(m image) { m.extent(1, 4, 0, 2) }, "cluster 2, which is not a data cluster", 4},
		{"a cluster out of range", func(m image) { m.extent(1, 4, 0, clusters) }, "cluster 64, which is not a data cluster", 4},
		{"a run out of range", func(m image) { m.page(5, 6, noPage, runs(20, 1<<31)) }, "cluster 64, which is not a data cluster", 5},
		{"a lost parent", func(m image) { clear(m[(metadataStart+2)*PageSize:][:PageSize]) }, "parent, blob 0x100000002, that does not exist", 1},
		{"an extent page out of range", func(m image) { m.page(2, 0, noPage, table(600, metadataPages)) }, "lists extent page 60, which is out of range", 2},
		{"a next page out of range", func(m image) { m.page(5, 0, metadataPages) }, "continues on page 60, which is out of range", 5},
		{"a cycle of pages", func(m image) { m.page(5, 0, 5) }, "this page must be page 1 of", 5},
		{"a malformed page", func(m image) { m.page(2, 0, noPage, desc(extentTable, []byte{1})) }, "malformed", 2},
		{"an endless table", func(m image) {
			m.page(2, 0, noPage, desc(extentTable, bytes.Repeat([]byte{0, 0, 0, 0, 255, 255, 255, 255}, 3)))
		}, "malformed", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newImage()
			c.damage(m)
			r := check(t, m, Options{Passes: 2})
			require.NotEmpty(t, r.Findings)
			f := r.Findings[0]
			assert.Contains(t, f.What, c.want)
			assert.Equal(t, c.page, f.Page)
			assert.Equal(t, (metadataStart+c.page)*PageSize, f.Offset)
			assert.Equal(t, c.page == 0, f.Super)
		})
	}
}

// While SPDK creates or deletes a snapshot, the snapshot and its clone share clusters. SPDK
// completes an interrupted operation when it loads the lvstore.
func TestUnfinishedSnapshotsMayShareClusters(t *testing.T) {
	for _, name := range []string{takingAttr, removingAttr} {
		m := newImage()
		m.page(2, 0, noPage, attr(xattr, "name", "s\x00"), attr(internalXattr, name, "\x01\x00\x00\x00\x01\x00\x00\x00"), table(600, 3, 0))
		assert.Empty(t, check(t, m, Options{}).Findings, name)
	}
}

func TestUnusableSuperBlocksAreRejected(t *testing.T) {
	_, err := Check(t.Context(), make(image, 1<<20), 1<<20, Options{})
	require.ErrorIs(t, err, ErrNoBlobstore)
	for name, damage := range map[string]func(m image){
		"checksum": func(m image) { m[100]++ },
		"version":  func(m image) { le.PutUint32(m[8:], 4); m.sum() },
		"pages":    func(m image) { le.PutUint32(m[92:], 8192); m.sum() },
		"clusters": func(m image) { le.PutUint32(m[28:], 1000); m.sum() },
		"size":     func(m image) { le.PutUint64(m[80:], 1<<40); m.sum() },
		"metadata": func(m image) { le.PutUint32(m[52:], 1<<31); m.sum() },
	} {
		m := newImage()
		damage(m)
		_, err := Check(t.Context(), m, int64(len(m)), Options{Passes: 2})
		assert.ErrorIs(t, err, ErrSuperBlock, name)
	}
}

func (m image) sum() { le.PutUint32(m[PageSize-4:], checksum(m[:PageSize])) }

// changing is a device on which another process repairs damage between two passes.
type changing struct {
	image
	reads int
	then  func(image)
}

func (c *changing) ReadAt(b []byte, at int64) (int, error) {
	if at == 0 {
		if c.reads++; c.reads == 2 {
			c.then(c.image)
		}
	}
	return c.image.ReadAt(b, at)
}

func TestOnlyDamageFoundInAllPassesIsReported(t *testing.T) {
	m := newImage()
	m.extent(1, 4, 0, 10)
	m.extent(1, 0, 0, 30)
	r, err := Check(t.Context(), &changing{image: m, then: func(m image) { m.extent(1, 4, 0, 12) }}, int64(len(m)), Options{Passes: 3})
	require.NoError(t, err)
	assert.Len(t, r.Findings, 1)
	assert.EqualValues(t, 0, r.Findings[0].Page)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Check(ctx, m, int64(len(m)), Options{})
	require.ErrorIs(t, err, context.Canceled)
}

// SuperPage returns exactly the page that SPDK v26.05 writes for a new lvstore.
func TestSuperPageMatchesSPDK(t *testing.T) {
	want, err := hex.DecodeString("00000000010000000000000000000000" + "0318000000040000000000000000000000000000000000000000000000" +
		"022d00000004002500757569643037373739313730" + "2d326335302d346239632d383834612d64363437666439353532386300" + "020d000000040005006e616d656c76733000" + "05080000000000000000000000")
	require.NoError(t, err)
	got, at, err := SuperPage(Super{SuperBlob: firstID, MetadataStart: 7, MetadataPages: 10}, "07779170-2c50-4b9c-884a-d647fd95528c", "lvs0")
	require.NoError(t, err)
	assert.EqualValues(t, 7*PageSize, at)
	assert.Equal(t, want, got[:len(want)])
	assert.Equal(t, make([]byte, PageSize-8-len(want)), got[len(want):PageSize-8])
	assert.Equal(t, "ffffffffdd2408eb", hex.EncodeToString(got[PageSize-8:]), "SPDK's own checksum")
	for _, wrong := range []Super{{SuperBlob: 1}, {SuperBlob: firstID + 10, MetadataPages: 10}} {
		_, _, err := SuperPage(wrong, "07779170-2c50-4b9c-884a-d647fd95528c", "lvs0")
		require.Error(t, err)
	}
	_, _, err = SuperPage(Super{SuperBlob: firstID, MetadataPages: 10}, "no uuid", "lvs0")
	require.Error(t, err)
}

func FuzzCheck(f *testing.F) {
	f.Add(0, []byte{1})
	f.Add((metadataStart+1)*PageSize+16, []byte{5, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at int, b []byte) {
		m := newImage()
		if at < 0 || at >= len(m) {
			t.Skip()
		}
		copy(m[at:], b)
		// with valid checksums, the content of the pages is checked
		for i := 0; i <= metadataPages+metadataStart; i++ {
			p := m[i*PageSize:][:PageSize]
			if i == 0 || i >= metadataStart && !(*page)(p).zero() {
				le.PutUint32(p[PageSize-4:], checksum(p))
			}
		}
		_, _ = Check(t.Context(), m, int64(len(m)), Options{})
	})
}

// failing is a device on which one read fails.
type failing struct {
	image
	at, reads int
}

func (f *failing) ReadAt(b []byte, at int64) (int, error) {
	f.reads++
	if f.reads == f.at {
		return 0, errRead
	}
	return f.image.ReadAt(b, at)
}

var errRead = errors.New("input/output error")

func TestAnyFailedReadFailsTheCheck(t *testing.T) {
	for _, o := range []Options{{}, {Quick: true}} {
		for at := 1; ; at++ {
			f := &failing{image: newImage(), at: at}
			_, err := Check(t.Context(), f, int64(len(f.image)), o)
			if f.reads < at {
				require.NoError(t, err)
				require.Greater(t, at, 2)
				break
			}
			require.ErrorIs(t, err, errRead, "read %d", at)
		}
	}
}

// A canceled check returns the context's error.
func TestCanceledCheckFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newImage()
	m.extent(1, 0, 0, 30) // damage causes a second pass
	_, err := Check(ctx, m, int64(len(m)), Options{Passes: 3, Pause: time.Hour})
	require.ErrorIs(t, err, context.Canceled)
}
