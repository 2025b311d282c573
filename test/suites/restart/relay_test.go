package restart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A relay forwards requests to the testbed's proxy, and sends each call of a batch as a separate
// request. The relay kills the target after the target has executed the modifying call with the
// number at.
type relay struct {
	w         *testbed
	mu        sync.Mutex
	at, calls int
	lost      bool   // the response does not arrive
	method    string // of that call
	die       func()
	unsaved   bool // the target's changes are not saved
}

func (w *testbed) newRelay(die func()) (r *relay, url string) {
	r = &relay{w: w, die: die}
	server := httptest.NewServer(r)
	w.t.Cleanup(server.Close)
	return r, server.URL
}

// killAfter kills the target after a call.
func (r *relay) killAfter(at int, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.lost, r.calls, r.method = at, lost, 0, ""
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) != nil {
		resp, reply := r.pass(req, body)
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(reply)
		return
	}
	replies := make([]json.RawMessage, len(batch))
	for i, call := range batch {
		var resp *http.Response
		resp, replies[i] = r.pass(req, call)
		maps.Copy(w.Header(), resp.Header)
	}
	w.Header().Del("Content-Length")
	_ = json.NewEncoder(w).Encode(replies)
}

// pass forwards one call.
func (r *relay) pass(req *http.Request, body []byte) (*http.Response, []byte) {
	var call struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &call)
	r.mu.Lock()
	unsaved := r.unsaved
	r.mu.Unlock()
	notSaved := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"disk full"}}`, call.ID, jsonrpc.CodeNotSaved)
	if unsaved && call.Method == "spdkgate_config_await" {
		return &http.Response{StatusCode: http.StatusInternalServerError}, notSaved
	}
	out := req.Clone(req.Context())
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host, out.Host = "http", r.w.url[len("http://"):], ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	resp.Header.Del("Spdkgate-Stream") // makes the client send each call by POST
	reply, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if m, _ := rpcschema.Default().Method(call.Method); unsaved && m != nil && m.Mutates {
		return resp, notSaved
	}
	if r.deadly(call.Method) {
		r.die()
		if r.lost {
			panic(http.ErrAbortHandler)
		}
	}
	return resp, reply
}

// deadly counts a call, and reports whether the target must be killed after it.
func (r *relay) deadly(method string) bool {
	if m, _ := rpcschema.Default().Method(method); m == nil || !m.Mutates {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.calls == r.at {
		r.method = method
		return true
	}
	return false
}
