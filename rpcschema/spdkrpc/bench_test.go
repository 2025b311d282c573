package spdkrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// BenchmarkSocket measures calls on a UNIX socket to a trivial peer that responds to all requests
// from one read with one write.
func BenchmarkSocket(b *testing.B) {
	for name, result := range map[string]string{"short": `true`, "listing": listing(484 << 10)} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, inFlight), func(b *testing.B) {
				s := dial(b, listen(b, func(p *peer) { respond(p.Conn, result) }))
				benchmarkCalls(b, s, inFlight)
			})
		}
	}
}

// benchmarkCalls keeps a given number of calls in flight.
func benchmarkCalls(b *testing.B, c Caller, inFlight int) {
	params := json.RawMessage(`{"name":"a bdev"}`)
	require.NoError(b, c.Call(b.Context(), "bdev_get_bdevs", params, nil))
	b.ReportAllocs()
	b.SetParallelism(max(inFlight/2, 1)) // a multiple of GOMAXPROCS
	b.ResetTimer()
	if inFlight == 1 {
		for range b.N {
			require.NoError(b, c.Call(b.Context(), "bdev_get_bdevs", params, nil))
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := c.Call(b.Context(), "bdev_get_bdevs", params, nil); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// respond returns the same result for all requests until the connection ends.
func respond(c net.Conn, result string) {
	var in, out []byte
	var split jsonrpc.Splitter
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		in, out = append(in, buffer[:n]...), out[:0]
		rest := in
		for {
			length, err := split.Next(rest)
			if err != nil || length == 0 {
				break
			}
			id, _, _ := bytes.Cut(bytes.TrimPrefix(rest[:length], []byte(`{"jsonrpc":"2.0","id":`)), []byte(","))
			out = append(append(append(out, `{"jsonrpc":"2.0","id":`...), id...), `,"result":`...)
			out = append(append(out, result...), "}\n"...)
			rest = rest[length:]
		}
		in = append(in[:0], rest...)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// listing returns a result of approximately the given length in bytes.
func listing(length int) string {
	const bdev = `{"name":"Malloc0","aliases":["0a1b2c3d-0000-4000-8000-000000000000"],"product_name":"Malloc disk","block_size":512,"num_blocks":2048}`
	return "[" + strings.Repeat(bdev+",", length/len(bdev)) + bdev + "]"
}

// BenchmarkHTTPS measures calls to a trivial proxy in the same process: by POST, and on a stream.
func BenchmarkHTTPS(b *testing.B) {
	for _, by := range []string{"POST", "stream"} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", by, inFlight), func(b *testing.B) {
				_, h := behind(b, func(ws *websocket.Conn, _ *http.Request) { respondFrames(ws) })
				if by == "stream" {
					connect(b, h)
				} else {
					h.streams.closed = true
				}
				benchmarkCalls(b, h, inFlight)
			})
		}
	}
}

// respondFrames responds to requests with true until the connection ends.
func respondFrames(ws *websocket.Conn) {
	for {
		_, text, err := ws.ReadMessage()
		if err != nil {
			return
		}
		id, _, _ := bytes.Cut(bytes.TrimPrefix(text, []byte(`{"jsonrpc":"2.0","id":`)), []byte(","))
		if ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":true}`, id)) != nil {
			return
		}
	}
}
