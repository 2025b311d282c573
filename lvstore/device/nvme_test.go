package device

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type p = map[string]any

// A controller serves bdev_nvme_send_cmd. It has one namespace with 512-byte blocks.
type controller struct {
	content []byte
	mdts    byte
	largest atomic.Int64 // size of the largest command, in bytes
	answer  any          // if not nil, the response or error to return instead
}

func (c *controller) Call(_ context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var q struct {
		Cmdbuf  []byte `json:"-"`
		Buffer  string `json:"cmdbuf"`
		Kind    string `json:"cmd_type"`
		DataLen uint64 `json:"data_len"`
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return err
	}
	if q.Cmdbuf, err = base64.URLEncoding.DecodeString(q.Buffer); err != nil {
		return err
	}
	data := make([]byte, 4096)
	switch {
	case method == "spdk_get_version":
		return json.Unmarshal([]byte(`{"version": "SPDK v26.05"}`), result)
	case q.Kind == "admin" && q.Cmdbuf[0] == 6 && q.Cmdbuf[40] == 1:
		data[77] = c.mdts
	case q.Kind == "io" && q.Cmdbuf[0] == 2:
		from, n := binary.LittleEndian.Uint64(q.Cmdbuf[40:])*512, (uint64(binary.LittleEndian.Uint16(q.Cmdbuf[48:]))+1)*512
		if n != q.DataLen {
			panic("the length of the data differs from that in the command")
		}
		for old := c.largest.Load(); int64(n) > old && !c.largest.CompareAndSwap(old, int64(n)); old = c.largest.Load() {
		}
		data = c.content[from : from+n]
	default:
		panic("a command that does not only read")
	}
	answer := any(p{"cpl": base64.URLEncoding.EncodeToString(make([]byte, 16)), "data": base64.URLEncoding.EncodeToString(data)})
	if c.answer != nil {
		answer = c.answer
	}
	if err, ok := answer.(error); ok {
		return err
	}
	if text, err = json.Marshal(answer); err != nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Err: err}
	}
	return nil
}

func namespaceBdev(t *testing.T, name string, block uint32, metadata *uint32) spdkrpc.BdevInfo {
	b := spdkrpc.BdevInfo{Name: name, BlockSize: block, NumBlocks: 8, MDSize: metadata}
	require.NoError(t, json.Unmarshal([]byte(`{"nvme": [{}]}`), &b.DriverSpecific))
	b.DriverSpecific.NVMe[0].NSData.ID = 1
	return b
}

// A namespace is refused if Read commands do not return its content unchanged.
func TestUnsupportedNamespacesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		bdev spdkrpc.BdevInfo
		read bool
	}{
		"512":                            {namespaceBdev(t, "a", 512, nil), false},
		"512, named after its namespace": {namespaceBdev(t, "an1", 512, nil), true},
		"4096":                           {namespaceBdev(t, "an1", 4096, new(uint32(0))), true},
		"metadata":                       {namespaceBdev(t, "an1", 4096, new(uint32(8))), false},
		"1 byte of metadata":             {namespaceBdev(t, "an1", 4096, new(uint32(1))), false},
		"metadata in the blocks":         {namespaceBdev(t, "an1", 520, nil), false},
		"block size of 0":                {namespaceBdev(t, "an1", 0, nil), false},
		"blocks larger than a piece":     {namespaceBdev(t, "an1", 8192, nil), false},
		"another namespace":              {namespaceBdev(t, "an2", 512, nil), false},
	} {
		d, err := Open(t.Context(), spdkrpc.NewClient(&controller{}), c.bdev)
		if !c.read {
			require.ErrorIs(t, err, ErrNotReadable, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, 8*int64(c.bdev.BlockSize), d.Size, name)
		assert.Equal(t, "namespace 1 of NVMe controller a", d.Place)
	}
}

// No command transfers more than the controller allows, or more than 128 KiB.
func TestCommandsRespectControllerLimits(t *testing.T) {
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	for mdts, want := range map[byte]int64{0: 128 << 10, 1: 8 << 10, 2: 16 << 10, 4: 64 << 10, 5: 128 << 10, 6: 128 << 10, 255: 128 << 10} {
		c := &controller{content: content, mdts: mdts}
		d, err := Open(t.Context(), spdkrpc.NewClient(c), namespaceBdev(t, "an1", 512, nil))
		require.NoError(t, err)
		b := make([]byte, len(content)-8192)
		n, err := d.ReadAt(b, 4096)
		require.NoError(t, err)
		assert.Len(t, b, n)
		assert.Equal(t, content[4096:len(content)-4096], b)
		assert.Equal(t, want, c.largest.Load(), "MDTS %d", mdts)
	}
}

// Reading or identifying a namespace fails if the response is incomplete, malformed or an error.
func TestInvalidReadResponsesAreRejected(t *testing.T) {
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
		"all":                        {p{"cpl": text(16, 0), "data": text(4096, 0)}, ""},
		"phase":                      {p{"cpl": text(16, 1), "data": text(4096, 0)}, ""},
		"status":                     {p{"cpl": text(16, 2), "data": text(4096, 0)}, "NVMe status 0x1"},
		"short":                      {p{"cpl": text(16, 0), "data": text(512, 0)}, "512 bytes instead of 4096"},
		"none":                       {p{"cpl": text(16, 0)}, "0 bytes instead of 4096"},
		"short completion":           {p{"cpl": text(15, 0), "data": text(4096, 0)}, "a completion of 15 bytes"},
		"not base64":                 {p{"cpl": "!", "data": text(4096, 0)}, "a completion"},
		"data not base64":            {p{"cpl": text(16, 0), "data": "!"}, "illegal base64"},
		"not an object":              {3, "read 4096 bytes at 0 through the target"},
		"refused: failed controller": {&spdkrpc.Error{Kind: spdkrpc.Failed, Code: -32603}, "read 4096 bytes"},
		"refused: no controller":     {&spdkrpc.Error{Kind: spdkrpc.InvalidParams, Code: -32602}, "read 4096 bytes"},
		"no response":                {&spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}, "read 4096 bytes"},
	} {
		n := &namespace{ctx: t.Context(), rpc: spdkrpc.NewClient(&controller{content: make([]byte, 8192), answer: c.answer}), controller: "a", nsid: 1, block: 512, piece: 4096, inFlight: make(chan struct{}, 1)}
		read, err := n.ReadAt(make([]byte, 4096), 0)
		_, identified := n.largestPiece()
		if c.says == "" {
			require.NoError(t, err, name)
			require.NoError(t, identified, name)
			assert.Equal(t, 4096, read)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
		require.ErrorContains(t, identified, "identify NVMe controller a", name)
		for _, err := range []error{err, identified} {
			assert.Equal(t, name == "status" || strings.HasPrefix(name, "refused"), errors.Is(err, ErrRead), "%s: %v", name, err)
		}
		assert.Zero(t, read)
	}
}

func TestCancellationEndsReadsThroughATarget(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Open(ctx, spdkrpc.NewClient(&controller{}), namespaceBdev(t, "an1", 512, nil))
	require.NoError(t, err)
	d.ReaderAt.(*namespace).inFlight = nil // occupies all slots
	cancel()
	_, err = d.ReadAt(make([]byte, 4096), 0)
	require.ErrorIs(t, err, context.Canceled)
}
