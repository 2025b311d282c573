package quiesce

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// resize sets the size of v0 in MiB.
func (b *bench) resize(size uint64) {
	require.NoError(b.t, b.rpc.BdevLvolResize(b.t.Context(), spdkrpc.BdevLvolResizeParams{Name: "lvs0/v0", SizeInMiB: size}))
}

// A snapshot that is smaller than both its parent and its clone is not deleted, because the clone
// would then show the parent's data.
func TestShrunkSnapshotsAreNotDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		parent, snapshot, clone uint64 // sizes in MiB; parent 0 means that there is no parent
		refused                 bool
	}{
		"equal":                   {8, 8, 8, false},
		"grown":                   {4, 4, 8, false},
		"shrunk":                  {8, 4, 4, false},
		"shrunk, then grown":      {8, 4, 8, true},
		"grown a little":          {12, 4, 8, true},
		"grown beyond the parent": {8, 4, 12, true},
		"without a parent":        {0, 4, 8, false},
	} {
		for _, mode := range []Mode{{Freeze: true}, {Idle: true}, {Unchecked: true}} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, "v26.05")
				b.q.opts.HasExtentPage = func(context.Context, *spdkrpc.Client, string, uint64) (bool, error) { return true, nil }
				b.volume("v0")
				if c.parent > 0 {
					b.resize(c.parent)
					b.snapshot("v0", "p0")
				}
				b.resize(c.snapshot)
				b.snapshot("v0", "s0")
				b.resize(c.clone)
				_, err := b.delete("s0", mode)
				if !c.refused {
					require.NoError(t, err)
					return
				}
				var shrunk *ShrunkError
				require.ErrorAs(t, err, &shrunk)
				assert.Equal(t, ShrunkError{"lvs0/s0", "lvs0/v0"}, *shrunk)
				assert.True(t, b.exists("s0"))

				// From here on, the clone is itself a snapshot.
				b.snapshot("v0", "t0")
				_, err = b.delete("s0", mode)
				require.ErrorAs(t, err, &shrunk)
				assert.Equal(t, "lvs0/t0", shrunk.Clone)
				_, err = b.delete("p0", mode)
				require.NoError(t, err)
				_, err = b.delete("s0", mode)
				require.NoError(t, err)
			})
		}
	}
}

// The check also applies to parents outside the lvstore.
func TestShrunkSnapshotsOfExternalParentsAreNotDeleted(t *testing.T) {
	b := newBench(t, "v26.05")
	_, err := b.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("image"), NumBlocks: 2048, BlockSize: 4096})
	require.NoError(t, err)
	_, err = b.rpc.BdevLvolCloneBdev(t.Context(), spdkrpc.BdevLvolCloneBdevParams{Bdev: "image", LvsName: "lvs0", CloneName: "v0"})
	require.NoError(t, err)
	b.snapshot("v0", "equal")
	_, err = b.delete("equal", Mode{})
	require.NoError(t, err)
	b.resize(4)
	b.snapshot("v0", "s0")
	b.resize(8)
	_, err = b.delete("s0", Mode{})
	require.ErrorAs(t, err, new(*ShrunkError))
	b.resize(4)
	_, err = b.delete("s0", Mode{})
	require.NoError(t, err)
}
