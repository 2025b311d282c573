package kubernetes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"log/slog"
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
	"time"

	"github.com/stretchr/testify/require"
)

// api is an API server with one node. Objects are stored as decoded by encoding/json.
type api struct {
	t      *testing.T
	client *Client
	dir    string

	mu          sync.Mutex
	node        map[string]any // nil if there is no such node
	csiNode     map[string]any
	attachments []any
	lists       map[string][]any // further objects, by path
	status      int              // HTTP status of all responses; 0 for normal responses
	calls       []string
	// beforePatch is called before a patch is applied, to simulate another client's change.
	beforePatch func()
}

func newAPI(t *testing.T) *api {
	a := &api{t: t, dir: t.TempDir(), node: object(`{"metadata": {"name": "node-1"}, "spec": {}, "status": {}}`)}
	server := httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "ca.crt"), ca, 0o600))
	a.setToken("first")
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(u.Host)
	require.NoError(t, err)
	a.client, err = New(host, port, a.dir)
	require.NoError(t, err)
	return a
}

func (a *api) setToken(token string) {
	require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, "token"), []byte(token+"\n"), 0o600))
}

func object(text string) map[string]any {
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	return o
}

// set changes the node's spec or status.
func (a *api) set(part, key, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node[part].(map[string]any)[key] = object(`{"v": ` + value + `}`)["v"]
}

// change changes the server's state.
func (a *api) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
}

func (a *api) taints() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var keys []string
	list, _ := a.node["spec"].(map[string]any)["taints"].([]any)
	for _, t := range list {
		keys = append(keys, t.(map[string]any)["key"].(string))
	}
	return keys
}

func (a *api) made(call string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if strings.HasPrefix(c, call) {
			n++
		}
	}
	return n
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	answer := func(status int, o any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(o)
	}
	fails := func(status int, message string) {
		answer(status, map[string]any{"kind": "Status", "message": message})
	}
	switch {
	case a.status != 0:
		fails(a.status, "User \"system:serviceaccount:spdkcsi:spdkcsi-node-sa\" cannot do this")
	case r.URL.Path == "/apis/storage.k8s.io/v1/csinodes/node-1" && a.csiNode != nil:
		answer(http.StatusOK, a.csiNode)
	case r.URL.Path == "/apis/storage.k8s.io/v1/volumeattachments" || a.lists[r.URL.Path] != nil:
		all := a.attachments
		if a.lists[r.URL.Path] != nil {
			all = a.lists[r.URL.Path]
		}
		// Each page contains one item, so that the tests read lists page by page.
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		page := map[string]any{"metadata": map[string]any{}, "items": all[min(from, len(all)):min(from+1, len(all))]}
		if from+1 < len(all) {
			page["metadata"] = map[string]any{"continue": strconv.Itoa(from + 1)}
		}
		answer(http.StatusOK, page)
	case r.URL.Path != "/api/v1/nodes/node-1" || a.node == nil:
		fails(http.StatusNotFound, "not found")
	case r.Method == http.MethodPatch:
		if a.beforePatch != nil {
			a.beforePatch()
		}
		var patch []struct {
			Op, Path string
			Value    any
		}
		if r.Header.Get("Content-Type") != "application/json-patch+json" || json.NewDecoder(r.Body).Decode(&patch) != nil {
			fails(http.StatusUnsupportedMediaType, "not a JSON patch")
			return
		}
		spec := a.node["spec"].(map[string]any)
		taints, _ := spec["taints"].([]any)
		for _, step := range patch {
			i, err := strconv.Atoi(strings.TrimPrefix(step.Path, "/spec/taints/"))
			if err != nil || i >= len(taints) || step.Op == "test" && !reflect.DeepEqual(taints[i], step.Value) {
				fails(http.StatusUnprocessableEntity, "testing path "+step.Path+" failed")
				return
			}
			if step.Op == "remove" {
				taints = append(append([]any{}, taints[:i]...), taints[i+1:]...)
			}
		}
		spec["taints"] = taints
		answer(http.StatusOK, a.node)
	default:
		answer(http.StatusOK, a.node)
	}
}

// turns is a clock that runs one function at each pause, and ends the wait after the last function.
type turns struct {
	end    context.CancelFunc
	next   []func()
	pauses []time.Duration
}

func (t *turns) wait(ctx context.Context, d time.Duration) error {
	t.pauses = append(t.pauses, d)
	if len(t.next) == 0 {
		t.end()
		return context.Canceled
	}
	t.next[0]()
	t.next = t.next[1:]
	return ctx.Err()
}

func logTo(b *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
