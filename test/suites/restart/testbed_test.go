package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	long       = time.Minute // a timeout that a passing test never reaches
	password   = "not a secret"
	configYAML = `listen: 127.0.0.1:0
tls: {insecure_plaintext: true}
target: {socket: %[1]s/spdk.sock, save: {dir: %[1]s/saved, disable_auto_examine: %[3]t}, keys: {dir: %[1]s/keys}, freeze: {dir: %[1]s/frozen}, accept_loading_what_hosts_write: %[4]t}
log: {format: text, level: warn}
users:
- {name: admin, password_hash: %[2]q, roles: [admin]}
`
)

// A testbed consists of a target, whose files are in one directory, and a proxy for the target.
type testbed struct {
	t       *testing.T
	dir     string
	process *exec.Cmd

	simulated *spdktest.Target // instead of process

	ended  chan struct{}
	client *spdkrpc.Client
	caller spdkrpc.Caller
	url    string
	log    *logtest.Log
	stop   func()

	disableAutoExamine bool // see target.save.disable_auto_examine
	acceptLoading      bool // see target.accept_loading_what_hosts_write
	// remaining configuration, with HASH for the password's hash
	tenants string
	port    string // where exports listen
}

func newTestbed(t *testing.T) *testbed {
	if os.Getenv("SPDK_TGT") == "" {
		t.Skip("SPDK_TGT=/path/to/spdk_tgt is not set: it names the real target for these tests")
	}
	return newTestbedOrSimulated(t)
}

// newTestbedOrSimulated creates a testbed, with a simulated target if no real one is given.
func newTestbedOrSimulated(t *testing.T) *testbed {
	w := &testbed{t: t, dir: t.TempDir(), log: new(logtest.Log)}
	for _, disk := range []string{"disk0", "disk1"} {
		require.NoError(t, os.WriteFile(w.at(disk), nil, 0o600))
		require.NoError(t, os.Truncate(w.at(disk), 1<<30))
	}
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			text, _ := os.ReadFile(w.at("tgt.log"))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("last output of the target:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
			t.Logf("log of the proxy:\n%s", w.log)
		}
	})
	return w
}

func (w *testbed) at(name string) string { return filepath.Join(w.dir, name) }

// start starts spdk_tgt, and reports whether it responded to calls.
func (w *testbed) start(args ...string) bool {
	w.t.Helper()
	if os.Getenv("SPDK_TGT") == "" {
		return w.simulate(slices.Contains(args, "-c"))
	}
	out, err := os.OpenFile(w.at("tgt.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	defer func() { _ = out.Close() }()
	args = append([]string{"--no-huge", "-s", "1024", "-m", "0x1", "--limit-coredump", "-r", w.at("spdk.sock")}, args...)
	args = append(args, strings.Fields(os.Getenv("SPDK_TGT_ARGS"))...)
	w.process = exec.Command(os.Getenv("SPDK_TGT"), args...)
	w.process.Stdout, w.process.Stderr, w.process.Dir = out, out, w.dir
	w.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	require.NoError(w.t, w.process.Start())
	w.ended = make(chan struct{})
	go func(p *exec.Cmd, ended chan struct{}) { _ = p.Wait(); close(ended) }(w.process, w.ended)
	socket := spdkrpc.NewSocket(w.at("spdk.sock"))
	defer func() { _ = socket.Close() }()
	for {
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
		err := socket.Call(ctx, "spdk_get_version", nil, nil)
		cancel()
		if err == nil {
			w.t.Logf("%q answers after %.2f s", args[8:], time.Since(began).Seconds())
			return true
		}
		select {
		case <-w.ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		require.Less(w.t, time.Since(began), long)
	}
}

// saved returns the arguments that cause spdk_tgt to load the saved configuration.
func (w *testbed) saved(more ...string) []string {
	return append([]string{"-c", w.at("saved/current.json")}, more...)
}

// simulate starts the simulated target, with or without the saved configuration.
func (w *testbed) simulate(saved bool) bool {
	w.t.Helper()
	require.NoError(w.t, os.RemoveAll(w.at("load.json")))
	if saved {
		text, err := os.ReadFile(w.at("saved/current.json"))
		require.NoError(w.t, err)
		require.NoError(w.t, os.WriteFile(w.at("load.json"), text, 0o600))
	}
	if w.simulated != nil {
		return w.simulated.Restart() == nil
	}
	target, err := spdktest.Start(spdktest.Options{Socket: w.at("spdk.sock"), ConfigFile: w.at("load.json"), IgnoreInitErrors: true})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, target.Close()) })
	w.simulated = target
	return true
}

func (w *testbed) kill() {
	if w.simulated != nil {
		w.simulated.Crash()
	}
	if w.process == nil {
		return
	}
	_ = w.process.Process.Kill()
	<-w.ended
	w.process = nil
}

// serve starts a proxy.
func (w *testbed) serve() {
	w.t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.at("config.yaml"), fmt.Appendf(nil, configYAML+"%[5]s", w.dir, hash, w.disableAutoExamine, w.acceptLoading, strings.ReplaceAll(w.tenants, "HASH", string(hash))), 0o600))
	c, err := config.Load(w.at("config.yaml"))
	require.NoError(w.t, err)
	server, err := proxy.NewServer(c, proxy.Options{Log: config.NewLogger(w.log, c.Log)})
	require.NoError(w.t, err)
	listener, err := server.Listen()
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	w.url = "http://" + listener.Addr().String()
	w.stop = sync.OnceFunc(func() { cancel(); assert.NoError(w.t, <-served) })
	w.t.Cleanup(w.stop)
	w.caller = w.as("admin")
	w.client = spdkrpc.NewClient(w.caller)
}

// as returns a caller for a user.
func (w *testbed) as(user string) spdkrpc.Caller {
	w.t.Helper()
	caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: w.url, Username: user, Password: password})
	require.NoError(w.t, err)
	return caller
}

// call makes a call that must succeed.
func (w *testbed) call(method string, params map[string]any, result any) {
	w.t.Helper()
	var argument any
	if params != nil {
		argument = params
	}
	require.NoError(w.t, w.caller.Call(w.t.Context(), method, argument, result), method)
}

// fresh waits until the proxy is connected to the current target process.
func (w *testbed) fresh() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		resp, err := http.Get(w.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK && w.caller.Call(w.t.Context(), "bdev_get_iostat", nil, nil) == nil
	}, long, 20*time.Millisecond)
}

func (w *testbed) status() (s spdkrpc.ProxySavedConfig) {
	w.t.Helper()
	s, err := w.client.SpdkgateConfigGetStatus(w.t.Context())
	require.NoError(w.t, err)
	return s
}

// awaitSaved waits until the proxy has saved all changes.
func (w *testbed) awaitSaved() {
	w.t.Helper()
	require.Eventually(w.t, func() bool { s := w.status(); return !s.Pending && !s.Failed && s.SavedAt != nil }, long, 50*time.Millisecond)
}

// hasKeys reports whether the target supports keys, which v24.05 introduced.
func (w *testbed) hasKeys() bool {
	r, err := w.client.Release(w.t.Context())
	require.NoError(w.t, err)
	return r.String() >= "v24.05"
}

// has reports whether the target was built with a method.
func (w *testbed) has(method string) bool {
	var methods []string
	w.call("rpc_get_methods", nil, &methods)
	return slices.Contains(methods, method)
}

// state returns the target's objects without the parts that differ at each start: the order of
// lists, counters, and, before v24.05, the UUIDs of file-backed bdevs.
func (w *testbed) state() map[string]any {
	w.t.Helper()
	state := map[string]any{}
	methods := []string{"nvmf_get_subsystems", "nvmf_get_transports", "nvmf_discovery_get_referrals", "bdev_get_bdevs", "bdev_lvol_get_lvstores", "iscsi_get_portal_groups",
		"iscsi_get_initiator_groups", "iscsi_get_target_nodes", "iscsi_get_auth_groups", "accel_crypto_keys_get"}
	if w.hasKeys() {
		methods = append(methods, "keyring_get_keys")
	}
	for _, method := range methods {
		var result []any
		w.call(method, nil, &result)
		state[method] = w.unordered(result)
	}
	return state
}

func (w *testbed) unordered(v any) any {
	switch v := v.(type) {
	case []any:
		texts := map[string]any{}
		for _, item := range v {
			item = w.unordered(item)
			text, err := json.Marshal(item)
			require.NoError(w.t, err)
			texts[string(text)] = item
		}
		return texts
	case map[string]any:
		product, _ := v["product_name"].(string)
		_, ofRAID := v["is_configured"]
		if onFile := product == "AIO disk" || product == "passthru" || ofRAID; onFile && !w.hasKeys() {
			delete(v, "uuid")
			delete(v, "aliases")
		}
		for name := range v {
			v[name] = w.unordered(v[name])
		}
	}
	return v
}
