package move

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

// A staleDisk allocates clusters for a thin copy. A newly allocated cluster contains bytes of a
// deleted volume wherever nothing has been written.
type staleDisk struct {
	cluster int64
	known   map[int64]bool
}

// allocate lists the clusters with written blocks, in the file of a copy.
func (d *staleDisk) allocate(t *testing.T, path string) inventory.Allocation {
	const block = 4096
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	written := map[int64]bool{}
	for at := int64(0); at < size; at += block {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if err != nil {
			break
		}
		at = data / block * block
		written[at] = true
	}
	for at := range written {
		i := at / d.cluster
		if d.known[i] {
			continue
		}
		d.known[i] = true
		for hole := i * d.cluster; hole < min((i+1)*d.cluster, size); hole += block {
			if !written[hole] {
				_, err := f.WriteAt(bytes.Repeat([]byte("STALE..."), block/8), hole)
				require.NoError(t, err)
			}
		}
	}
	count := (size + d.cluster - 1) / d.cluster
	a := inventory.Allocation{SizeBytes: size, ClusterSize: d.cluster, Bitmap: make([]byte, (count+7)/8), Counted: true}
	for i := range d.known {
		a.Bitmap[i/8] |= 1 << (i % 8)
	}
	return a
}

// For all sizes of clusters and volumes, no bytes of deleted volumes remain in a copy, including
// beyond the original's end and in clusters that were allocated by writing zeros to a neighboring
// cluster.
func TestCopyContainsNoStaleBytes(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size, copied, cluster int64
		data                  []int64 // chunks of the original that are not zero
		unknown               bool    // the clusters of the copy are unknown
	}{
		"clusters like chunks":               {size: 12 * mib, copied: 12 * mib, cluster: mib, data: []int64{0, 3}},
		"larger clusters":                    {size: 12 * mib, copied: 12 * mib, cluster: 4 * mib, data: []int64{0, 5}},
		"clusters across chunks":             {size: 12 * mib, copied: 12 * mib, cluster: 3 * mib / 2, data: []int64{0, 3}},
		"clusters across chunks, one chunk":  {size: 12 * mib, copied: 12 * mib, cluster: 3 * mib / 2, data: []int64{6}},
		"a larger copy":                      {size: 5 * mib, copied: 8 * mib, cluster: 4 * mib, data: []int64{0, 4}},
		"a larger copy, clusters across":     {size: 6 * mib, copied: 15 * mib / 2, cluster: 5 * mib / 2, data: []int64{5}},
		"unknown clusters":                   {size: 12 * mib, copied: 12 * mib, cluster: 4 * mib, data: []int64{0, 5}, unknown: true},
		"unknown clusters and a larger copy": {size: 5 * mib, copied: 8 * mib, cluster: 4 * mib, data: []int64{0, 4}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := make([]byte, c.copied)
			for _, chunk := range c.data {
				copy(want[chunk*mib:], bytes.Repeat([]byte("original"), mib/8))
			}
			f := newFarm(t, want[:c.size])
			f.growing = c.copied - c.size
			disk := &staleDisk{cluster: c.cluster, known: map[int64]bool{}}
			f.allocated = func(id string) (inventory.Allocation, error) {
				if id == original.String() {
					return inventory.Allocation{}, errUnknown
				}
				a := disk.allocate(t, f.file(id))
				if c.unknown {
					return inventory.Allocation{}, errUnknown
				}
				return a, nil
			}
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err)
			disk.allocate(t, f.file(copied.String())) // allocate the clusters of the last writes
			assert.True(t, bytes.Equal(want, f.contents(copied)))
		})
	}
}
