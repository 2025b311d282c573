package schema

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A fake is a target's socket that records the last call to the expected method, and returns the
// response that the test has set. Earlier calls that the proxy itself makes receive other responses
// (see ask). Unlike the simulated target in spdktest, the fake has no state of its own.
type fake struct {
	socket  string
	release rpcschema.Release

	mu       sync.Mutex
	expected string           // the method that will be called
	answer   jsonrpc.Response // the response to that method
	method   string           // of the last call
	params   any              // parameters of the last call; nil if there was none
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
	if method != f.expected {
		if answer, ok := f.ask(method, params); ok {
			return answer
		}
	}
	f.method, f.params = method, params
	f.arrivals++
	return f.answer
}

// fakeStore is the lvstore that contains all volumes of a fake, and nothing else.
const fakeStore = "fakestore"

// ask responds to the proxy's own calls, which query the release, and the users of a volume whose
// snapshot is requested. It reports that no lvstore has the requested name, and that the target
// examines volumes. Every requested bdev is a volume without users, whose snapshot does not exist
// yet.
func (f *fake) ask(method string, params any) (answer jsonrpc.Response, ok bool) {
	switch method {
	case "spdk_get_version":
		return jsonrpc.Response{Result: versionResult(f.release)}, true
	case "framework_get_config": // it examines volumes, so they may be parents of clones
		return jsonrpc.Response{Result: json.RawMessage(`[{"method":"bdev_set_options","params":{"bdev_auto_examine":true}}]`)}, true
	case "bdev_get_bdevs":
		named, _ := params.(map[string]any)
		name, _ := named["name"].(string)
		if strings.HasPrefix(name, fakeStore+"/") {
			return jsonrpc.Response{Error: &jsonrpc.Error{Code: -19, Message: "No such device"}}, true
		}
		return jsonrpc.Response{Result: volumeResult(name)}, true
	case "bdev_lvol_get_lvstores", "iscsi_get_target_nodes", "nbd_get_disks", "ublk_get_disks", "vhost_get_controllers":
		return jsonrpc.Response{Result: json.RawMessage("[]")}, true
	}
	return jsonrpc.Response{}, false
}

// volumeResult is the response of bdev_get_bdevs for a volume.
func volumeResult(name string) json.RawMessage {
	text, _ := json.Marshal([]any{map[string]any{
		"name": name, "aliases": []string{fakeStore + "/volume"}, "claimed": false, "driver_specific": map[string]any{"lvol": map[string]any{}},
		"supported_io_types": map[string]any{"read": true, "write": true},
	}})
	return text
}

// versionResult is a target's response to spdk_get_version at release r.
func versionResult(r rpcschema.Release) json.RawMessage {
	text, _ := json.Marshal(map[string]any{
		"version": "SPDK " + r.String(),
		"fields":  map[string]any{"major": r.Year, "minor": r.Month, "patch": 0, "suffix": ""},
	})
	return text
}

// expect sets the expected method and its response, and clears the last call.
func (f *fake) expect(method string, answer jsonrpc.Response) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expected, f.answer = method, answer
	f.method, f.params = "", nil
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
