package move

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

// A chunk is compared if it changed, contains the mark of an unfinished copy, or shares a cluster
// of the copy with such a chunk.
func TestAffectedChunksIncludeSharedClusters(t *testing.T) {
	const mib = 1 << 20
	changed := func(cluster int64, list ...int) *inventory.Allocation {
		a := inventory.Allocation{SizeBytes: 12 * mib, ClusterSize: cluster, Bitmap: make([]byte, 48)}
		for _, i := range list {
			a.Bitmap[i/8] |= 1 << (i % 8)
		}
		return &a
	}
	for name, c := range map[string]struct {
		changed *inventory.Allocation
		cluster int64 // cluster size of the copy
		want    []int
	}{
		"nothing":                {changed(mib), mib, []int{0}},
		"clusters like chunks":   {changed(mib, 3, 11), mib, []int{0, 3, 11}},
		"larger clusters":        {changed(mib, 9), 4 * mib, []int{0, 1, 2, 3, 8, 9, 10, 11}},
		"smaller clusters":       {changed(mib/4, 4*5+3), mib / 2, []int{0, 5}},
		"larger in the original": {changed(4*mib, 1), mib, []int{0, 4, 5, 6, 7}},
		"across chunks":          {changed(mib, 7), 3 * mib / 2, []int{0, 1, 2, 6, 7, 8}},
		"beyond the end":         {changed(mib, 11), 5 * mib, []int{0, 1, 2, 3, 4, 10, 11}},
		"one cluster":            {changed(mib), 64 * mib, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	} {
		var got []int
		for i, is := range affected(c.changed, &inventory.Allocation{ClusterSize: c.cluster}, 12*mib) {
			if is {
				got = append(got, i)
			}
		}
		assert.Equal(t, c.want, got, name)
	}
}

// If Copy allocates another cluster after Prepare, bytes of a deleted volume in the rest of that
// cluster are overwritten.
func TestSecondCopyContainsNoStaleBytes(t *testing.T) {
	const mib = 1 << 20
	for _, cluster := range []int64{mib, 3 * mib / 2, 5 * mib} {
		f := preparable(t)
		disk := &staleDisk{cluster: cluster, known: map[int64]bool{}}
		was := f.allocated
		f.allocated = func(id string) (inventory.Allocation, error) {
			if id == copied.String() {
				return disk.allocate(t, f.file(id)), nil
			}
			return was(id)
		}
		f.prepare()
		r, err := f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err)
		assert.Empty(t, r.SHA256)
		disk.allocate(t, f.file(copied.String()))
		f.checkMoved("")
	}
}

// A prepared volume is reported as empty only if the whole volume was read.
func TestPreparedVolumeIsNotMistakenForEmpty(t *testing.T) {
	for at, empty := range map[int64]bool{-1: true, 2 * clusterBytes: false} {
		f := preparable(t)
		content := make([]byte, clusters*clusterBytes)
		if at >= 0 {
			copy(content[at:], bytes.Repeat([]byte("raw"), 1000))
		}
		require.NoError(t, os.WriteFile(f.file(original.String()), content, 0o600))
		_, err := f.mover().Prepare(t.Context(), original, nil, nil)
		require.NoError(t, err)
		delete(f.node, original.String())
		r, err := f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err)
		f.checkMoved("")
		assert.Equal(t, empty, r.Empty)
		assert.NotEmpty(t, r.SHA256)
	}
}

// A mark contains a base only if the whole block is exactly as Prepare writes it.
func TestBaseIsReadOnlyFromExactMarks(t *testing.T) {
	block := func(text string) []byte { return append([]byte(text), make([]byte, markBytes-len(text))...) }
	id := original.String()
	text := string(bytes.TrimRight(markOf(id, ""), "\x00"))
	for name, c := range map[string]struct {
		first  []byte
		base   string
		marked bool
	}{
		"no base":         {markOf(id, ""), "", true},
		"a base":          {markOf(id, snapshot.UUID), snapshot.UUID, true},
		"another volume":  {markOf(source.String(), snapshot.UUID), "", false},
		"a file system":   {bytes.Repeat([]byte{7}, markBytes), "", false},
		"zeros":           {make([]byte, markBytes), "", false},
		"only the UUID":   {block(text + snapshot.UUID + "\n"), "", true},
		"not a UUID":      {block(text + basePrefix + "lvs0/s1\n"), "", true},
		"an id":           {block(text + basePrefix + snapshot.String() + "\n"), "", true},
		"an unended line": {block(text + basePrefix + snapshot.UUID), "", true},
		"text to the end": {[]byte(text + strings.Repeat("x", markBytes-len(text))), "", true},
	} {
		base, marked := readMark(c.first, id)
		assert.Equal(t, c.base, base, name)
		assert.Equal(t, c.marked, marked, name)
	}
}
