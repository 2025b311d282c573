package changes

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// No matter how a metadata page is damaged, the response is either correct or an error. If a page
// with a valid checksum lacks a cluster, or is an extent page of another snapshot, only the number
// of clusters shows the damage. SPDK reports that number from v24.05 on.
func TestDamagedMetadataIsRejected(t *testing.T) {
	w := newTestbed(t, "aio", *seed)
	w.prepare()
	w.prepare()
	list := w.list()
	type question struct{ s, base *snapshot }
	var questions []question
	right := map[question][]bool{}
	for i, s := range list {
		for _, base := range []*snapshot{nil, list[(i+1)%len(list)]} {
			q := question{s, base}
			found, err := w.changes(s, base)
			require.NoError(t, err)
			questions, right[q] = append(questions, q), found
		}
	}
	ask := func(damage string, page int64) (refused int) {
		for _, q := range questions {
			found, err := w.changes(q.s, q.base)
			var rpc *spdkrpc.Error
			if err != nil {
				require.ErrorAs(t, err, &rpc, damage)
				assert.Contains(t, []int{-74, -22}, rpc.Code, "%s of page %d: %v", damage, page, err)
				refused++
				continue
			}
			assert.Equal(t, right[q], found, "%s of page %d", damage, page)
		}
		return refused
	}

	file, err := os.OpenFile(w.base.image, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	super, err := blobstore.ReadSuper(file)
	require.NoError(t, err)
	pages, total := usedPages(t, file, super), map[string]int{}
	for n, content := range pages {
		at := (super.MetadataStart + n) * blobstore.PageSize
		for kind, change := range damages {
			damaged := change(bytes.Clone(content), pages)
			if damaged == nil || !w.release.Has(rpcschema.CountsClusters) && (kind == "lost cluster" || kind == "other page" && isExtents(content) && isExtents(damaged)) {
				continue
			}
			_, err := file.WriteAt(damaged, at)
			require.NoError(t, err)
			total[kind] += ask(kind, n)
			_, err = file.WriteAt(content, at)
			require.NoError(t, err)
		}
	}
	assert.Zero(t, ask("nothing", 0))
	for kind := range damages {
		if kind != "lost cluster" || w.release.Has(rpcschema.CountsClusters) {
			assert.Positive(t, total[kind], kind)
		}
		t.Logf("%-14s %d of %d pages, %d queries refused", kind, len(pages), super.MetadataPages, total[kind])
	}
}

// usedPages returns up to 40 metadata pages that are in use, excluding the lvstore's own page.
func usedPages(t *testing.T, file *os.File, super blobstore.Super) map[int64][]byte {
	used := map[int64][]byte{}
	for n := int64(1); n < super.MetadataPages && len(used) < 40; n++ {
		page := make([]byte, blobstore.PageSize)
		_, err := file.ReadAt(page, (super.MetadataStart+n)*blobstore.PageSize)
		require.NoError(t, err)
		if len(bytes.Trim(page, "\x00")) > 0 {
			used[n] = page
		}
	}
	return used
}

// damages contains functions that change a page. A function returns nil if its damage does not
// apply to the page.
var damages = map[string]func(page []byte, all map[int64][]byte) []byte{
	"dropped": func(page []byte, _ map[int64][]byte) []byte { return make([]byte, len(page)) },
	"torn": func(page []byte, all map[int64][]byte) []byte {
		for _, other := range all {
			if !bytes.Equal(page[2048:], other[2048:]) {
				copy(page[2048:], other[2048:])
				return page
			}
		}
		return nil
	},
	"other page": func(page []byte, all map[int64][]byte) []byte {
		for _, other := range all {
			if !bytes.Equal(page, other) {
				return bytes.Clone(other)
			}
		}
		return nil
	},
	// The metadata names a snapshot's grandparent as its parent, so the chain skips one snapshot.
	"skipped": func(page []byte, all map[int64][]byte) []byte {
		at := parentAt(page)
		if at < 0 {
			return nil
		}
		between := all[int64(binary.LittleEndian.Uint64(page[at:])-1<<32)]
		if between == nil || parentAt(between) < 0 {
			return nil
		}
		copy(page[at:at+8], between[parentAt(between):])
		blobstoretest.Seal(page)
		return page
	},
	// An extent page is older than the last allocation.
	"lost cluster": func(page []byte, _ map[int64][]byte) []byte {
		if !isExtents(page) {
			return nil
		}
		for at := 25; at < 4088-4; at += 4 {
			if binary.LittleEndian.Uint32(page[at:]) != 0 {
				clear(page[at : at+4])
				blobstoretest.Seal(page)
				return page
			}
		}
		return nil
	},
}

// isExtents reports whether a page in use is an extent page.
func isExtents(page []byte) bool { return page[16] == 6 }

// parentAt returns the offset of the parent's id in a page, or -1 if there is none.
func parentAt(page []byte) int {
	if at := bytes.Index(page, []byte("\x04\x00\x08\x00SNAP")); at >= 0 {
		return at + 8
	}
	return -1
}

// The comparison with the contents detects clusters that are missing from the list.
func TestComparisonDetectsMissingClusters(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	base, s := &snapshot{content: make([]byte, 4*cluster)}, &snapshot{content: make([]byte, 5*cluster)}
	_, _ = rnd.Read(s.content[cluster : 2*cluster])
	_, _ = rnd.Read(s.content[4*cluster:])
	for lost, want := range map[int]int{-1: -1, 1: 1, 4: 4} {
		list := []bool{true, true, false, false, true}
		if lost >= 0 {
			list[lost] = false
		}
		wrong, differ, _ := restore(s, base, list)
		assert.Equal(t, want, wrong)
		assert.Equal(t, 2, differ)
	}
}
