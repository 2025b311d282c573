package proxy

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A wireClient imitates an existing client: it sends exactly the bytes that the client's HTTP
// library sends, and reads responses as the client does.
type wireClient struct {
	name   string
	file   string // file in testdata/clients with the client's calls
	header string // with placeholders for the length and the credentials
	kept   bool   // whether the client reuses connections
	denied string // calls that contain this text must be refused
	checks func(t *testing.T, request map[string]any, status int, response map[string]any) (failure string)
}

// The order matters, because each client leaves a transport or groups on the target.
var wireClients = []wireClient{
	{name: "spdk-csi, iSCSI", file: "spdk-csi-iscsi.txt", header: spdkCSIHeader, kept: true, checks: asSPDKCSI},
	{name: "spdk-csi, NVMe", file: "spdk-csi-nvmf.txt", header: spdkCSIHeader, kept: true, checks: asSPDKCSI},
	{name: "Cinder", file: "cinder.txt", header: cinderHeader, checks: asCinder},
}

const (
	// Go's HTTP client sends the password without waiting for a challenge.
	spdkCSIHeader = "POST / HTTP/1.1\r\nHost: 127.0.0.1:9009\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n" +
		"Authorization: Basic YWRtaW46Y29ycmVjdCBob3JzZQ==\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
	// Python's requests.post with a string as data sends no Content-Type, and uses a separate
	// session for each call.
	cinderHeader = "POST / HTTP/1.1\r\nHost: 127.0.0.1:9009\r\nUser-Agent: python-requests/2.34.2\r\nAccept-Encoding: gzip, deflate\r\n" +
		"Accept: */*\r\nConnection: keep-alive\r\nContent-Length: %d\r\nAuthorization: Basic YWRtaW46Y29ycmVjdCBob3JzZQ==\r\n\r\n"
)

// TestCinderWorksAsATenant replays Cinder's calls with the role cinder, as the tenant in
// docs/old-clients.md, while another owner's subsystem exists.
func TestCinderWorksAsATenant(t *testing.T) {
	b := newSafeBench(t, "v26.05", func(c *config.Config) {
		documented := strings.Replace(documented(t, "docs/old-clients.md", "Cinder as a tenant", "yaml")[0], "192.0.2.11", "127.0.0.1", 1) // as in the recorded calls
		var more config.Config
		require.NoError(t, config.DecodeStrict([]byte(documented), &more))
		more.Users[0].PasswordHash, more.Users[0].PasswordHashFile = hashes()[viewerPassword], ""
		c.Users, c.Tenants = append(c.Users, more.Users...), more.Tenants
	})
	b.as(t, "admin", "nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:foreign"}`, http.StatusOK)
	asTenant := wireClients[2]
	require.Equal(t, "Cinder", asTenant.name)
	asTenant.header = strings.Replace(asTenant.header, "YWRtaW46Y29ycmVjdCBob3JzZQ==", base64.StdEncoding.EncodeToString([]byte("cinder:"+viewerPassword)), 1)
	asTenant.denied = "nvmf_create_transport" // Cinder ignores the error
	b.live(t, asTenant)
	call := func(method, params string) string {
		return b.do("POST", "/", "cinder", viewerPassword, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))).body
	}
	nqns := func() (names []string) {
		var answer struct{ Result []struct{ NQN string } }
		require.NoError(t, json.Unmarshal([]byte(call("nvmf_get_subsystems", "{}")), &answer))
		for _, s := range answer.Result {
			names = append(names, s.NQN)
		}
		return names
	}
	const first, own = "nqn.2014-08.org.nvmexpress.discovery", "nqn.2016-06.io.spdk:cnode7"
	assert.Equal(t, []string{first}, nqns())
	call("nvmf_create_subsystem", `{"nqn":"`+own+`","allow_any_host":true}`)
	assert.Equal(t, []string{first, own}, nqns())
	b.as(t, "admin", "nvmf_subsystem_add_listener", `{"nqn":"`+first+`","listen_address":{"trtype":"TCP","traddr":"127.0.0.1","trsvcid":"8009"}}`, http.StatusOK)
	assert.NotContains(t, call("nvmf_get_subsystems", "{}"), "8009")
	assert.Contains(t, call("nvmf_get_subsystems", `{"nqn":"`+first+`"}`), "-19")
	assert.Contains(t, call("nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:foreign2","allow_any_host":true}`), "tenant")
}

// asSPDKCSI reads a response like rpcClient.call in SPDK's spdk-csi: it ignores the body if the
// status is 400 or higher, requires equal numbers as ids, and distinguishes errors by their text.
func asSPDKCSI(t *testing.T, request map[string]any, status int, response map[string]any) string {
	if status >= http.StatusBadRequest {
		return fmt.Sprintf("HTTP error code: %d", status)
	}
	assert.Equal(t, request["id"], response["id"])
	if e, ok := response["error"].(map[string]any); ok && e["code"] != 0.0 {
		return e["message"].(string)
	}
	return ""
}

// asCinder reads a response like _rpc_call in Cinder: the status must be ok as defined by the
// Python library requests, and the response must contain a result.
func asCinder(_ *testing.T, _ map[string]any, status int, response map[string]any) string {
	if status >= http.StatusBadRequest {
		text, _ := json.Marshal(response)
		return "SPDK target responded with error: " + string(text)
	}
	if _, ok := response["result"]; !ok {
		text, _ := json.Marshal(response["error"])
		return "KeyError: 'result': " + string(text)
	}
	return ""
}

// TestOldClientsKeepWorking replays a volume's life cycle with existing clients, on old and current
// releases of the target. SPDK_SOCK may name a real target, which must have been freshly started.
func TestOldClientsKeepWorking(t *testing.T) {
	releases := []string{"v23.01", "v24.01", "v26.05"}
	if realtarget.Given() {
		// the release of the simulated target, which this test does not use
		releases = []string{"v26.05"}
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release, func(c *config.Config) {
				if realtarget.Given() {
					c.Target.Socket = realtarget.Socket(t)
				}
			})
			for _, client := range wireClients {
				t.Run(client.name, func(t *testing.T) { b.live(t, client) })
			}
			caller := spdkrpc.NewSocket(b.config.Target.Socket)
			defer func() { _ = caller.Close() }()
			r, err := spdkrpc.NewClient(caller).Release(t.Context())
			require.NoError(t, err)
			told := map[string]int{}
			for _, line := range b.log.Lines(t, "call of an old client translated") {
				told[fmt.Sprint(line["user"], " ", line["method"], " ", line["from"], " ", line["to"])]++
			}
			want := map[string]int{}
			if r.String() == "v26.05" {
				want = map[string]int{"admin bdev_lvol_create size size_in_mib": 1, "admin bdev_lvol_resize size size_in_mib": 1}
			}
			assert.Equal(t, want, told, "each translation is logged once, whatever the number of calls")
		})
	}
}

// live creates an lvstore and replays a client's calls on a real target.
func (b *bench) live(t *testing.T, client wireClient) {
	b.t = t
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 12<<30))
	b.as(t, "admin", "bdev_aio_create", fmt.Sprintf(`{"name":"disk","filename":%q,"block_size":4096}`, disk), http.StatusOK)
	lvstore := resultText(t, b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"disk","lvs_name":"lvs0","clear_method":"none"}`, http.StatusOK))
	defer func() {
		b.as(t, "admin", "bdev_lvol_delete_lvstore", `{"lvs_name":"lvs0"}`, http.StatusOK)
		b.as(t, "admin", "bdev_aio_delete", `{"name":"disk"}`, http.StatusOK)
	}()
	if client.name == "Cinder" { // Cinder creates only an RDMA transport
		b.as(t, "admin", "nvmf_create_transport", `{"trtype":"TCP"}`, http.StatusOK)
	}
	names := map[string]string{"lvstore": lvstore}
	script, err := os.ReadFile(filepath.Join("testdata", "clients", client.file))
	require.NoError(t, err)
	w := &wire{t: t, client: client, address: strings.TrimPrefix(b.http.URL, "http://")}
	defer w.hangUp()
	calls := 0
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSpace(line)
		if client.denied != "" && strings.Contains(line, client.denied) {
			line, _, _ = strings.Cut(line, " -> ")
			line += " -> error SPDK target responded with error"
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		body, want, ok := strings.Cut(line, " -> ")
		require.True(t, ok, line)
		body = os.Expand(body, func(name string) string {
			require.Contains(t, names, name, line)
			return names[name]
		})
		w.call(body, want, names)
		calls++
	}
	assert.NotContains(t, b.as(t, "admin", "bdev_get_bdevs", "", http.StatusOK).body, "Logical Volume", "nothing is left")
	t.Logf("%d calls", calls)
}

// A wire manages a client's connections.
type wire struct {
	t       *testing.T
	client  wireClient
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (w *wire) hangUp() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// call sends the bytes, and compares the response with the expected response: "result", "result
// NAME" if later calls use it, "result = JSON" or "error TEXT".
func (w *wire) call(body, want string, names map[string]string) {
	t := w.t
	if w.conn == nil {
		conn, err := net.Dial("tcp", w.address)
		require.NoError(t, err)
		w.conn, w.in = conn, bufio.NewReader(conn)
	}
	_, err := fmt.Fprintf(w.conn, w.client.header+"%s", len(body), body)
	require.NoError(t, err)
	response, err := http.ReadResponse(w.in, nil)
	require.NoError(t, err, body)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Positive(t, response.ContentLength, "neither chunked nor empty")
	if !w.client.kept {
		w.hangUp()
	}
	var request, answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &request))
	require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
	failure := w.client.checks(t, request, response.StatusCode, answer)
	if says, failed := strings.CutPrefix(want, "error "); failed {
		require.Contains(t, failure, says, body)
		return
	}
	require.Empty(t, failure, body)
	if value, fixed := strings.CutPrefix(want, "result = "); fixed {
		got, err := json.Marshal(answer["result"])
		require.NoError(t, err)
		require.JSONEq(t, value, string(got), body)
		return
	}
	if name, named := strings.CutPrefix(want, "result "); named {
		id, _ := answer["result"].(string)
		require.Regexp(t, uuidPattern, id, body)
		names[name] = id
	}
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Every translation is logged with its call. Each kind of translation causes only one warning per
// user, even after reloads.
func TestTranslationsAreLogged(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "other", PasswordHash: hashes()[adminPassword], Roles: []string{"admin"}})
	})
	b.as(t, "admin", "bdev_malloc_create", `{"name":"Base","num_blocks":524288,"block_size":4096}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"Base","lvs_name":"lvs0"}`, http.StatusOK)
	for i := range 3 {
		b.as(t, "admin", "bdev_lvol_create", fmt.Sprintf(`{"lvol_name":"v%d","size":4194305,"lvs_name":"lvs0"}`, i), http.StatusOK)
		require.NoError(t, b.proxy.Reload(b.config))
	}
	assert.Equal(t, []any{"size to size_in_mib"}, b.lastCall()["translated"])
	b.as(t, "other", "bdev_lvol_resize", `{"name":"lvs0/v0","size":8388608}`, http.StatusOK)
	b.as(t, "other", "get_lvol_stores", "", http.StatusOK)
	assert.Equal(t, []any{"get_lvol_stores to bdev_lvol_get_lvstores"}, b.lastCall()["translated"])
	b.as(t, "other", "log_set_level", `{"level":"debug"}`, http.StatusOK)
	b.as(t, "other", "bdev_get_iostat", `{"name":"lvs0/v0"}`, http.StatusOK)

	var told []string
	for _, line := range b.log.Lines(t, "call of an old client translated") {
		assert.Equal(t, "INFO", line["level"])
		told = append(told, fmt.Sprint(line["user"], ": ", line["method"], ": ", line["from"], " to ", line["to"]))
	}
	assert.Equal(t, []string{
		"admin: bdev_lvol_create: size to size_in_mib",
		"other: bdev_lvol_resize: size to size_in_mib",
		"other: bdev_lvol_get_lvstores: get_lvol_stores to bdev_lvol_get_lvstores",
		"other: log_set_level: level in another case to level",
		"other: bdev_get_iostat: name to names",
	}, told)
	assert.Equal(t, []string{
		"bdev_malloc_create", "bdev_lvol_create_lvstore", "bdev_lvol_create", "bdev_lvol_create", "bdev_lvol_create",
		"bdev_lvol_resize", "bdev_lvol_get_lvstores", "log_set_level", "bdev_get_iostat",
	}, b.reached(), "SPDK receives the current names")
}

// If translation is disabled, old parameters are rejected with a message that names the new
// parameters. A reload suffices to disable translation.
func TestTranslationCanBeDisabled(t *testing.T) {
	b := newBench(t, "v26.05")
	next := *b.config
	next.Compatibility.Translate = false
	require.NoError(t, b.proxy.Reload(&next))
	for _, c := range []struct{ method, params, says string }{
		{"bdev_lvol_resize", `{"name":"v","size":4194304}`, "give size_in_mib instead, which is size / 1048576"},
		{"get_lvol_stores", "", "method get_lvol_stores is called bdev_lvol_get_lvstores now"},
		{"log_set_level", `{"level":"debug"}`, "must be one of ERROR, WARNING, NOTICE, INFO, DEBUG"},
	} {
		assert.Contains(t, b.as(t, "admin", c.method, c.params, http.StatusBadRequest).body, c.says)
		assert.Nil(t, b.lastCall()["translated"])
	}
	assert.Empty(t, b.reached())
	assert.Empty(t, b.log.Lines(t, "call of an old client translated"))
	require.NoError(t, b.proxy.Reload(b.config))
	b.as(t, "admin", "get_lvol_stores", "", http.StatusOK)
}

func TestOldClientsPageExampleWorks(t *testing.T) {
	const page, example = "docs/old-clients.md", "Use an old client"
	requests, answers := documented(t, page, example, "json"), documented(t, page, example, "text")
	require.Len(t, answers, 1)
	b := newBench(t, "v26.05")
	b.as(t, "admin", "bdev_malloc_create", `{"name":"Base","num_blocks":524288,"block_size":4096}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"Base","lvs_name":"lvs0"}`, http.StatusOK)
	g := b.post(requests[0])
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	calls := b.target.Calls()
	assert.Equal(t, json.Number("1024"), calls[len(calls)-1].Params["size_in_mib"])
	var line, want map[string]any
	lines := b.log.Lines(t, "call of an old client translated")
	require.Len(t, lines, 1)
	line = lines[0]
	require.NoError(t, json.Unmarshal([]byte(answers[0]), &want))
	for _, key := range []string{"level", "msg", "user", "method", "from", "to"} {
		assert.Equal(t, want[key], line[key], key)
	}

	// Disabling translation works as documented.
	next := *b.config
	require.NoError(t, config.DecodeStrict([]byte(documented(t, page, "Turn translation off", "yaml")[0]), &next))
	require.NoError(t, b.proxy.Reload(&next))
	g = b.post(requests[0])
	assert.Equal(t, http.StatusBadRequest, g.StatusCode)
	assert.Contains(t, g.body, documentedMessage(t, page))
}

// The page lists every method and parameter that was removed from SPDK.
func TestOldClientsPageIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docs/old-clients.md")
	require.NoError(t, err)
	says := func(method, name string) { assert.Contains(t, string(text), "`"+name+"`", method) }
	gone := 0
	var look func(method string, s *rpcschema.Schema, name string)
	look = func(method string, s *rpcschema.Schema, name string) {
		if s.Until.Known() || s.AnyCaseUntil.Known() {
			gone++
			if s.AnyCaseUntil.Known() {
				name = method
			}
			says(method, name)
		}
		if s.Replaces != nil {
			says(method, s.Replaces.Name)
		}
		for _, p := range rpcschema.Default().Resolve(s).Properties {
			look(method, p.Schema, p.Name)
		}
	}
	for _, m := range rpcschema.Default().Methods() {
		for _, alias := range m.Aliases {
			says(m.Name, alias)
		}
		if m.Until.Known() {
			gone++
			says(m.Name, m.Name)
			continue
		}
		for _, p := range m.Params {
			look(m.Name, p.Schema, p.Name)
		}
	}
	assert.Greater(t, gone, 30)
}

// documentedMessage returns the client's error message as quoted on the page.
func documentedMessage(t *testing.T, page string) string {
	return strings.TrimSpace(documented(t, page, "Turn translation off", "text")[0])
}
