//go:build kernel

package kernel

import (
	"encoding/json"
	"encoding/pem"
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
	"github.com/spdkgate/spdkgate/driver/witness"
)

// A witnessAPI is a Kubernetes API server that has only the resource ReplicatedVolume. Like the
// policy of the component replication, it permits a node to change only the status of a volume
// whose writer is this node. The bearer token is the name of the node, or controllerToken.
type witnessAPI struct {
	*httptest.Server
	ca []byte
	// onStatus is called with each status that is stored.
	onStatus func(status map[string]any)

	mu      sync.Mutex
	version int
	objects map[string]object
}

type object = map[string]any

const (
	controllerToken = "controller"
	witnessPath     = "/apis/spdkgate.io/v1alpha1/replicatedvolumes"
)

func newWitnessAPI(t *testing.T) *witnessAPI {
	a := &witnessAPI{objects: map[string]object{}}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	a.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return a
}

func (a *witnessAPI) address(t *testing.T) (host, port string) {
	u, err := url.Parse(a.URL)
	require.NoError(t, err)
	host, port, err = net.SplitHostPort(u.Host)
	require.NoError(t, err)
	return host, port
}

// store returns the controller's access to the witnesses.
func (a *witnessAPI) store(t *testing.T) *witness.Store {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), a.ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(controllerToken), 0o600))
	host, port := a.address(t)
	client, err := kubernetes.New(host, port, dir)
	require.NoError(t, err)
	return witness.NewStore(client)
}

func (a *witnessAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body object
	_ = json.NewDecoder(r.Body).Decode(&body)
	a.mu.Lock()
	defer a.mu.Unlock()
	code, response := a.execute(r, body)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(response)
}

func refusedBecause(code int, message, name string) (int, any) {
	return code, object{"kind": "Status", "message": message, "details": object{"name": name}}
}

func metadata(o object) object { return o["metadata"].(object) }

// copied returns a deep copy, as the JSON decoder would return it.
func copied(o object) (c object) {
	text, _ := json.Marshal(o)
	_ = json.Unmarshal(text, &c)
	return c
}

func (a *witnessAPI) execute(r *http.Request, body object) (int, any) {
	rest, found := strings.CutPrefix(r.URL.Path, witnessPath)
	if !found {
		return refusedBecause(http.StatusNotFound, "no such resource", "")
	}
	name, part, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method == http.MethodPost {
		name = metadata(body)["name"].(string)
	}
	stored, exists := a.objects[name]
	switch {
	case r.Method == http.MethodGet && exists:
		return http.StatusOK, stored
	case user != controllerToken && part != "status":
		return refusedBecause(http.StatusForbidden, user+" is not permitted to do this", name)
	case r.Method == http.MethodPost && exists:
		return refusedBecause(http.StatusConflict, "already exists", name)
	case r.Method == http.MethodPost:
		a.version++
		delete(body, "status")
		metadata(body)["uid"] = "uid-" + strconv.Itoa(a.version)
		a.put(name, body)
		return http.StatusCreated, a.objects[name]
	case !exists:
		return refusedBecause(http.StatusNotFound, "not found", name)
	case r.Method == http.MethodDelete:
		changed := copied(stored)
		metadata(changed)["deletionTimestamp"] = "2026-11-27T00:00:00Z"
		a.put(name, changed)
		return http.StatusOK, a.objects[name]
	case metadata(body)["resourceVersion"] != metadata(stored)["resourceVersion"] || metadata(body)["uid"] != metadata(stored)["uid"]:
		return refusedBecause(http.StatusConflict, "the object has been modified", name)
	}
	changed := copied(stored)
	if part == "status" {
		writer := stored["spec"].(object)["writer"].(object)["node"]
		if user != controllerToken && user != writer {
			return refusedBecause(http.StatusForbidden, user+" is not the writer", name)
		}
		changed["status"] = body["status"]
	} else {
		changed["spec"] = body["spec"]
		metadata(changed)["finalizers"] = metadata(body)["finalizers"]
	}
	if reflect.DeepEqual(changed, stored) {
		return http.StatusOK, stored
	}
	a.put(name, changed)
	if metadata(changed)["deletionTimestamp"] != nil && metadata(changed)["finalizers"] == nil {
		delete(a.objects, name)
	}
	if status, ok := changed["status"].(object); ok && part == "status" && a.onStatus != nil {
		a.onStatus(copied(status))
	}
	return http.StatusOK, changed
}

// put stores an object with a new resourceVersion.
func (a *witnessAPI) put(name string, o object) {
	a.version++
	metadata(o)["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[name] = copied(o)
}
