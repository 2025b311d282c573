package changes

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestExtentPagesAreFound(t *testing.T) {
	for _, onFile := range []bool{true, false} {
		w := newWorld(t, onFile)
		r, rpc := new(Reader), spdkrpc.NewClient(w)
		check := func(want map[string][]bool) {
			for uuid, pages := range want {
				for n, want := range pages {
					has, err := r.HasExtentPage(t.Context(), rpc, uuid, uint64(n))
					require.NoError(t, err)
					assert.Equal(t, want, has, "%s %d", uuid, n)
				}
			}
		}
		check(map[string][]bool{"uuid-a": {true, true, false}, "uuid-b": {true, false, false}, "uuid-c": {false, true, true}, "uuid-v": {true, false, false}})

		// Meanwhile, the lvols have moved to other pages.
		w.store.Lvols[0].Blob, w.store.Lvols[3].Blob = 4, 1
		for i := range w.store.Lvols {
			w.store.Lvols[i].Parent = 0
		}
		w.store.Lvols[1].Blob, w.store.Lvols[2].Blob = 2, 3
		w.write(onFile)
		check(map[string][]bool{"uuid-a": {true, true, false}, "uuid-v": {true, false, false}})

		_, err := r.HasExtentPage(t.Context(), rpc, "uuid-a", 3)
		require.ErrorIs(t, err, blobstore.ErrMetadata)
		w.missing = "uuid-b"
		_, err = r.HasExtentPage(t.Context(), rpc, "uuid-b", 0)
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.HasExtentPage(ctx, rpc, "uuid-v", 0)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// If any page of an lvol cannot be trusted, the read fails.
func TestExtentPagesAreNotReadFromDamagedMetadata(t *testing.T) {
	w := newWorld(t, false)
	image := slices.Clone(w.image)
	damaged := 0
	for n := range int64(w.store.MetadataPages) {
		w.image = slices.Clone(image)
		blobstoretest.Page(w.image, n)[100] ^= 1
		has, err := new(Reader).HasExtentPage(t.Context(), spdkrpc.NewClient(w), "uuid-v", 0)
		if err != nil {
			damaged++
			continue
		}
		assert.True(t, has, "page %d", n)
	}
	assert.Positive(t, damaged)
}
