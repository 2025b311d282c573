package witness

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

// An api simulates an API server with the ReplicatedVolumes of a cluster. It has the properties of
// a real server that the package depends on: resourceVersion, the status subresource, finalizers,
// and the handling of writes without a change. Objects are maps, as decoded by encoding/json.
type api struct {
	t      *testing.T
	client *kubernetes.Client

	mu      sync.Mutex
	version int
	objects map[string]map[string]any
	calls   []string
	// next contains the faults for the next calls, by method; see the functions below.
	next   map[string][]fault
	absent bool             // the resource definition is not installed
	alter  func(status any) // changes the status before it is stored
}

// A fault replaces the normal handling of a call. execute returns the response that the server
// would give.
type fault func(execute func() (int, any)) (code int, response any)

// lostResponse executes the call, and closes the connection without a response.
func lostResponse(execute func() (int, any)) (int, any) { execute(); return 0, nil }

// lostRequest closes the connection without executing the call.
func lostRequest(func() (int, any)) (int, any) { return 0, nil }

// fails responds with a server error, and does not execute the call.
func fails(code int) fault {
	return func(func() (int, any)) (int, any) { return code, status("failed", "") }
}

// late responds that the server is overloaded, but executes the call when run is called later.
func late(run *func()) fault {
	return func(execute func() (int, any)) (int, any) {
		*run = func() { execute() }
		return http.StatusGatewayTimeout, status("timeout", "")
	}
}

// after calls f before the call is executed, to simulate a concurrent change by another client.
func after(f func()) fault {
	return func(execute func() (int, any)) (int, any) { f(); return execute() }
}

func responds(o any) fault {
	return func(func() (int, any)) (int, any) { return http.StatusOK, o }
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, objects: map[string]map[string]any{}, next: map[string][]fault{}, version: 100}
	server := httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o600))
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(u.Host)
	require.NoError(t, err)
	a.client, err = kubernetes.New(host, port, dir)
	require.NoError(t, err)
	return a
}

// store returns the store of a new process, which repeats calls at most ten times.
func (a *api) store() *Store {
	s := NewStore(a.client)
	s.pause = func(_ context.Context, attempt int) error {
		if attempt >= 10 {
			return context.DeadlineExceeded
		}
		return nil
	}
	return s
}

// inject sets the faults for the next calls with a method.
func (a *api) inject(method string, faults ...fault) {
	a.next[method] = append(a.next[method], faults...)
}

// copyOf returns a deep copy, in the types of encoding/json.
func copyOf(t *testing.T, o any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(text, &c))
	return c
}

func (a *api) object(name string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Contains(a.t, a.objects, name)
	return copyOf(a.t, a.objects[name])
}

// edit changes a stored object, as another client would.
func (a *api) edit(name string, f func(o map[string]any)) {
	f(a.objects[name])
	a.version++
	meta(a.objects[name])["resourceVersion"] = strconv.Itoa(a.version)
}

func meta(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }

func status(message, name string) any {
	return map[string]any{"kind": "Status", "message": message, "details": map[string]any{"name": name}}
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), collection))
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	execute := func() (int, any) { return a.execute(r.Method, r.URL.Path, body) }
	handle := after(func() {})
	if faults := a.next[r.Method]; len(faults) > 0 {
		handle, a.next[r.Method] = faults[0], faults[1:]
	}
	code, response := handle(execute)
	if code == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(response)
}

func (a *api) execute(method, path string, body map[string]any) (int, any) {
	rest, ours := strings.CutPrefix(path, collection)
	if a.absent || !ours {
		return http.StatusNotFound, "404 page not found"
	}
	name, part, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if method == http.MethodPost {
		name = meta(body)["name"].(string)
	}
	stored, exists := a.objects[name]
	switch {
	case method == http.MethodPost && exists:
		return http.StatusConflict, status("already exists", name)
	case method == http.MethodPost:
		a.version++
		delete(body, "status")
		meta(body)["uid"], meta(body)["resourceVersion"] = "uid-"+strconv.Itoa(a.version), strconv.Itoa(a.version)
		meta(body)["managedFields"] = []any{map[string]any{"manager": "spdk-csi"}}
		a.objects[name] = body
		return http.StatusCreated, copyOf(a.t, body)
	case !exists:
		return http.StatusNotFound, status("not found", name)
	case method == http.MethodGet:
		return http.StatusOK, copyOf(a.t, stored)
	case method == http.MethodDelete:
		wanted := body["preconditions"].(map[string]any)
		if wanted["uid"] != meta(stored)["uid"] || wanted["resourceVersion"] != meta(stored)["resourceVersion"] {
			return http.StatusConflict, status("the precondition fails", name)
		}
		a.edit(name, func(o map[string]any) { meta(o)["deletionTimestamp"] = "2026-11-27T00:00:00Z" })
		return http.StatusOK, copyOf(a.t, stored)
	case meta(body)["resourceVersion"] != meta(stored)["resourceVersion"] || meta(body)["uid"] != meta(stored)["uid"]:
		return http.StatusConflict, status("the object has been modified", name)
	}
	changed := maps.Clone(stored)
	if part == "status" {
		if changed["status"] = body["status"]; body["status"] == nil {
			delete(changed, "status")
		} else if a.alter != nil {
			a.alter(changed["status"])
		}
	} else {
		changed["spec"], changed["metadata"] = body["spec"], maps.Clone(meta(stored))
		meta(changed)["finalizers"] = meta(body)["finalizers"]
	}
	if reflect.DeepEqual(copyOf(a.t, changed), copyOf(a.t, stored)) {
		return http.StatusOK, copyOf(a.t, stored)
	}
	a.objects[name] = changed
	a.edit(name, func(map[string]any) {})
	if meta(changed)["deletionTimestamp"] != nil && meta(changed)["finalizers"] == nil {
		delete(a.objects, name)
	}
	return http.StatusOK, copyOf(a.t, changed)
}
