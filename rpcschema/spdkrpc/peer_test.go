package spdkrpc

import (
	"context"
	"io"
	"log"
	"net/http"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/sourcegraph/jsonrpc2"
	wsstream "github.com/sourcegraph/jsonrpc2/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// independent serves a connection with a JSON-RPC library that shares no code with this package.
func independent(stream jsonrpc2.ObjectStream) {
	handle := func(_ context.Context, _ *jsonrpc2.Conn, r *jsonrpc2.Request) (any, error) {
		switch r.Method {
		case "echo":
			return r.Params, nil
		case "nothing":
			return nil, nil
		case "fail":
			return nil, &jsonrpc2.Error{Code: -19, Message: "No such device"}
		}
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "unknown"}
	}
	c := jsonrpc2.NewConn(context.Background(), stream, jsonrpc2.AsyncHandler(jsonrpc2.HandlerWithError(handle)),
		jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
	<-c.DisconnectNotify()
}

// The client's connections over sockets and WebSockets work with another library's JSON-RPC server.
func TestFramingsWorkWithAnIndependentServer(t *testing.T) {
	socket := dial(t, listen(t, func(p *peer) { independent(jsonrpc2.NewPlainObjectStream(p.Conn)) }))
	posts, https := behind(t, func(ws *websocket.Conn, _ *http.Request) { independent(wsstream.NewObjectStream(ws)) })
	connect(t, https)
	for name, caller := range map[string]Caller{"socket": socket, "WebSocket": https} {
		t.Run(name, func(t *testing.T) {
			var calls sync.WaitGroup
			for i := range 100 {
				calls.Go(func() {
					var got map[string]any
					assert.NoError(t, caller.Call(t.Context(), "echo", map[string]any{"i": i, "text": "<ü\x01>"}, &got))
					assert.Equal(t, map[string]any{"i": float64(i), "text": "<ü\x01>"}, got)
					assert.ErrorIs(t, caller.Call(t.Context(), "fail", nil, nil), NoSuchDevice)
				})
			}
			calls.Wait()
			var nothing any = "something"
			require.NoError(t, caller.Call(t.Context(), "nothing", nil, &nothing))
			assert.Nil(t, nothing)
			require.ErrorIs(t, caller.Call(t.Context(), "other", nil, nil), MethodNotFound)
		})
	}
	assert.Zero(t, posts.posts.Load())
}
