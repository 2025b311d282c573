package kubectl

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

// asKubectl is the environment variable that makes the test binary act as kubectl. The variable's
// value is the API server's URL.
const asKubectl = "SPDKGATE_TEST_KUBECTL"

func TestMain(m *testing.M) {
	if server := os.Getenv(asKubectl); server != "" {
		os.Exit(fakeKubectl(server, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fakeKubectl simulates kubectl. get --raw prints the API server's response, and exec runs a
// command in a pod.
func fakeKubectl(server string, args []string) int {
	method, path, in := http.MethodGet, "", io.Reader(nil)
	switch {
	case len(args) > 2 && args[0] == "get" && args[1] == "--raw":
		path = args[2]
	case args[0] == "exec":
		method, path = http.MethodPost, "/exec?"+url.Values{"arg": args[1:]}.Encode()
		if slices.Contains(args, "--stdin") {
			in = os.Stdin
		}
	}
	req, err := http.NewRequest(method, server+path, in)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Unable to connect to the server")
		return 1
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(os.Stderr, resp.Body)
		return 1
	}
	_, _ = io.Copy(os.Stdout, resp.Body)
	fmt.Fprint(os.Stderr, resp.Header.Get("Notes"))
	code, _ := strconv.Atoi(resp.Header.Get("Exit-Code"))
	return code
}

// An api fakes the Kubernetes API and the controller's pod.
type api struct {
	Client

	mu      sync.Mutex
	lists   map[string][]string // objects as JSON, by path
	objects map[string]string   // single objects as JSON, by path
	fails   map[string]string   // error messages, by path
	queries map[string]url.Values
	// commands contains the arguments of each kubectl exec, and inputs contains the commands'
	// standard input.
	commands [][]string
	inputs   []string
	// runOn runs a command in the pod of a node plugin, given the command's arguments. If runOn is
	// nil, run is used.
	runOn func(args string) (out, notes string, code int)
	// run runs a command in the controller's pod.
	run func(input string) (out, notes string, code int)
}

func newAPI(t *testing.T) *api {
	a := &api{
		Client:  Client{Program: os.Args[0], Flags: []string{"--context=test"}, Namespace: "spdkcsi", Controller: "deployment/spdkcsi-controller", Container: "spdkcsi-controller"},
		lists:   map[string][]string{volumesPath: nil, attachmentsPath: nil, csiNodesPath: nil, capacitiesPath: nil},
		objects: map[string]string{},
		fails:   map[string]string{},
		queries: map[string]url.Values{},
	}
	server := httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(server.Close)
	t.Setenv(asKubectl, server.URL)
	return a
}

// change modifies the API's contents while other goroutines may read them.
func (a *api) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
}

// command returns the arguments of the i-th kubectl exec, counting from 0. A negative i counts from
// the end.
func (a *api) command(i int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i < 0 {
		i += len(a.commands)
	}
	return a.commands[i]
}

// input returns the first command's standard input.
func (a *api) input() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inputs[0]
}

// query returns the latest query for a path.
func (a *api) query(path string) url.Values {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queries[path]
}

// withSnapshots installs the API of snapshots.
func (a *api) withSnapshots(contents ...string) {
	a.change(func() { a.lists[contentsPath] = contents })
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	input, _ := io.ReadAll(r.Body) // while a command waits for its input, other calls read lists
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queries[r.URL.Path] = r.URL.Query()
	if message := a.fails[r.URL.Path]; message != "" {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, message)
		return
	}
	switch r.URL.Path {
	case "/exec":
		a.commands, a.inputs = append(a.commands, r.URL.Query()["arg"]), append(a.inputs, string(input))
		answer, in := a.run, string(input)
		if args := strings.Join(r.URL.Query()["arg"], " "); a.runOn != nil && strings.Contains(args, " pod/") && !strings.Contains(args, " pod/spdkcsi-controller-") {
			answer, in = a.runOn, args
		}
		out, notes, code := answer(in)
		w.Header().Set("Notes", notes)
		w.Header().Set("Exit-Code", strconv.Itoa(code))
		_, _ = io.WriteString(w, out)
		return
	case groupsPath:
		groups := `{"name": "storage.k8s.io"}`
		if _, ok := a.lists[contentsPath]; ok {
			groups += `, {"name": "` + snapshotGroup + `"}`
		}
		if _, ok := a.lists[witnessesPath]; ok {
			groups += `, {"name": "` + witnessGroup + `"}`
		}
		_, _ = io.WriteString(w, `{"kind": "APIGroupList", "groups": [`+groups+`]}`)
		return
	}
	if one, ok := a.objects[r.URL.Path]; ok {
		_, _ = io.WriteString(w, one)
		return
	}
	all, ok := a.lists[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "Error from server (NotFound): the server could not find the requested resource")
		return
	}
	// The pages are small, so that the tests read lists page by page. As on a real server, items do
	// not have a kind.
	const most = 3
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	next := ""
	if from+most < len(all) {
		next = strconv.Itoa(from + most)
	}
	page := strings.Join(all[min(from, len(all)):min(from+most, len(all))], ",")
	fmt.Fprintf(w, `{"metadata": {"continue": %q}, "items": [%s]}`, next, page)
}

const (
	idA, idB, idC = "storage-1:11111111-1111-4111-8111-111111111111", "storage-2:22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"
	snapA, snapB  = "storage-1:aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "storage-1:bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
)

func pv(name, namespace, claim, id, rest string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "fast",
		"claimRef": {"namespace": %q, "name": %q}, "csi": {"driver": "csi.spdk.io", "volumeHandle": %q%s}}, "status": {"phase": "Bound"}}`, name, namespace, claim, id, rest)
}

func attachment(name, volume, node string, attached bool) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"attacher": "csi.spdk.io", "nodeName": %q, "source": {"persistentVolumeName": %q}}, "status": {"attached": %t}}`, name, node, volume, attached)
}

const ofOther = `{"metadata": {"name": "other"}, "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}, "status": {"phase": "Bound"}}`

// withVolumes adds three volumes (one attached, one being attached, one created manually), and a
// volume of another driver.
func (a *api) withVolumes() {
	const attributes = `, "volumeAttributes": {"` + request.KeyStore + `": "lvs0", "` + connect.KeyTargetType + `": "TCP"}`
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists[volumesPath] = []string{pv("pv-b", "shop", "db", idB, attributes), ofOther, pv("pv-a", "shop", "data", idA, attributes), pv("pv-c", "lab", "hand", idC, "")}
	a.lists[attachmentsPath] = []string{
		attachment("1", "pv-a", "worker-1", true), attachment("2", "pv-b", "worker-2", false),
		`{"metadata": {"name": "3"}, "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "worker-1", "source": {"persistentVolumeName": "pv-a"}}}`,
	}
	a.lists[csiNodesPath] = []string{
		`{"metadata": {"name": "worker-1"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com"}, {"name": "csi.spdk.io"}]}}`,
		`{"metadata": {"name": "worker-2"}, "spec": {"drivers": [{"name": "csi.spdk.io"}]}}`, `{"metadata": {"name": "other"}, "spec": {"drivers": null}}`,
	}
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
