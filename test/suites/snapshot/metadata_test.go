package snapshot

import (
	"encoding/binary"
	"os"

	"github.com/stretchr/testify/require"
)

// firstPage reads the store's first metadata page, which belongs to the super blob. The super blob
// identifies the lvstore.
func (g *target) firstPage() [4096]byte {
	g.t.Helper()
	f, err := os.Open(g.image())
	require.NoError(g.t, err)
	defer func() { _ = f.Close() }()
	var page [4096]byte
	_, err = f.ReadAt(page[:], 0)
	require.NoError(g.t, err)
	require.Equal(g.t, "SPDKBLOB", string(page[:8]))
	start := int64(binary.LittleEndian.Uint32(page[48:]))
	_, err = f.ReadAt(page[:], start*4096)
	require.NoError(g.t, err)
	return page
}
