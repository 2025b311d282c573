package schema

import (
	"encoding/json"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A fake is a target's socket that remembers the last call and answers as it is
// told. It does nothing else: the simulated target, which does, is spdktest's.
type fake struct {
	socket  string
	release rpcschema.Release

	mu       sync.Mutex
	answer   jsonrpc.Response // to every method but the one that tells the release
	method   string           // of the last call
	params   any              // of the last call; nil: none
	arrivals int
}

func newFake(t *testing.T, r rpcschema.Release) *fake {
	f := &fake{socket: filepath.Join(t.TempDir(), "spdk.sock"), release: r}
	l, err := net.Listen("unix", f.socket)
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			served.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return f
}

func (f *fake) serve(conn net.Conn) {
	dec := json.NewDecoder(conn)
	for {
		var text json.RawMessage
		if dec.Decode(&text) != nil {
			return
		}
		value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
		if err != nil {
			return
		}
		request := value.(map[string]any)
		response := f.respond(request["method"].(string), request["params"])
		id, err := json.Marshal(request["id"])
		if err != nil {
			return
		}
		response.ID = id
		reply, err := response.MarshalJSON()
		if err != nil {
			return
		}
		if _, err := conn.Write(append(reply, '\n')); err != nil {
			return
		}
	}
}

func (f *fake) respond(method string, params any) jsonrpc.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	if method == "spdk_get_version" && f.method != method {
		return jsonrpc.Response{Result: versionResult(f.release)}
	}
	f.method, f.params = method, params
	f.arrivals++
	return f.answer
}

// versionResult is what a target of release r answers to spdk_get_version.
func versionResult(r rpcschema.Release) json.RawMessage {
	text, _ := json.Marshal(map[string]any{
		"version": "SPDK " + r.String(),
		"fields":  map[string]any{"major": r.Year, "minor": r.Month, "patch": 0, "suffix": ""},
	})
	return text
}

// expect sets the next answer and forgets the last call. The method is that
// which will be called.
func (f *fake) expect(method string, answer jsonrpc.Response) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.method, f.params, f.answer = "", nil, answer
	if method == "spdk_get_version" {
		f.method = method // it is asked for itself, not for the release
	}
}

func (f *fake) last() (method string, params any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.method, f.params
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.arrivals
}
