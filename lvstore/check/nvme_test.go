package check

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A namespace whose content Read commands would not return unchanged is refused.
func TestUnsupportedNamespacesAreRefused(t *testing.T) {
	namespace := func(name string, block uint32, metadata *uint32) spdkrpc.BdevInfo {
		b := spdkrpc.BdevInfo{Name: name, BlockSize: block, NumBlocks: 8, MDSize: metadata}
		require.NoError(t, json.Unmarshal([]byte(`{"nvme": [{}]}`), &b.DriverSpecific))
		b.DriverSpecific.NVMe[0].NSData.ID = 1
		return b
	}
	for name, c := range map[string]struct {
		bdev spdkrpc.BdevInfo
		read bool
	}{
		"512":                            {namespace("a", 512, nil), false},
		"512, named after its namespace": {namespace("an1", 512, nil), true},
		"4096":                           {namespace("an1", 4096, new(uint32(0))), true},
		"metadata":                       {namespace("an1", 4096, new(uint32(8))), false},
		"little metadata":                {namespace("an1", 4096, new(uint32(1))), false},
		"metadata in the blocks":         {namespace("an1", 520, nil), false},
		"no blocks":                      {namespace("an1", 0, nil), false},
		"larger than a piece":            {namespace("an1", 8192, nil), false},
		"another namespace":              {namespace("an2", 512, nil), false},
	} {
		d, err := openNVMe(t.Context(), nil, c.bdev)
		if !c.read {
			require.ErrorIs(t, err, ErrNotReadable, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, 8*int64(c.bdev.BlockSize), d.size, name)
		assert.Equal(t, "namespace 1 of NVMe controller a", d.place)
	}
}

// An incomplete answer is an error.
func TestIncompleteNamespaceResponsesAreRefused(t *testing.T) {
	text := func(n int, status byte) string {
		b := make([]byte, n)
		if n == 16 {
			b[14] = status
		}
		return base64.URLEncoding.EncodeToString(b)
	}
	for name, c := range map[string]struct {
		answer any
		says   string
	}{
		"all":              {p{"cpl": text(16, 0), "data": text(4096, 0)}, ""},
		"phase":            {p{"cpl": text(16, 1), "data": text(4096, 0)}, ""},
		"status":           {p{"cpl": text(16, 2), "data": text(4096, 0)}, "NVMe status 0x1"},
		"short":            {p{"cpl": text(16, 0), "data": text(512, 0)}, "512 bytes instead of 4096"},
		"none":             {p{"cpl": text(16, 0)}, "0 bytes instead of 4096"},
		"short completion": {p{"cpl": text(15, 0), "data": text(4096, 0)}, "a completion of 15 bytes"},
		"no base64":        {p{"cpl": "!", "data": text(4096, 0)}, "a completion"},
		"no base64 data":   {p{"cpl": text(16, 0), "data": "!"}, "read through the target: illegal base64"},
		"no object":        {3, "read 4096 bytes at 0 through the target"},
	} {
		n := &namespace{t.Context(), target(t, func(string, p) any { return c.answer }), "a", 1, 512}
		read, err := n.ReadAt(make([]byte, 8192), 0)
		if c.says == "" {
			require.NoError(t, err, name)
			assert.Equal(t, 8192, read)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
		assert.Zero(t, read)
	}
}
