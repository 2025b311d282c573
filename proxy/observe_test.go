package proxy

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// scrape reads the metrics without authentication.
func (b *bench) scrape() string {
	w := httptest.NewRecorder()
	b.proxy.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(b.t, http.StatusOK, w.Code)
	return w.Body.String()
}

func TestCallsAreCounted(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(createMalloc)
	b.post(createMalloc) // fails, because the bdev already exists
	b.post("{")
	b.post(`{"id":1,"method":"bdev_malloc_crate"}`)
	b.post(`[{"id":1,"method":"spdk_get_version"},{"id":2,"method":"spdk_get_version"}]`)
	b.post(`{"jsonrpc":"2.0","method":"spdk_get_version"}`)
	b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc))
	b.do("POST", "/", "admin", "wrong", strings.NewReader(createMalloc))
	b.post(`{"id":1,"method":"bdev_lvol_get_lvols","params":{"lvs_name":"none"}}`)
	text := b.scrape()
	for _, line := range []string{
		`spdk_proxy_calls_total{method="bdev_malloc_create",outcome="ok",user="admin"} 1`,
		`spdk_proxy_calls_total{method="bdev_malloc_create",outcome="spdk_error",user="admin"} 1`,
		`spdk_proxy_calls_total{method="bdev_malloc_create",outcome="denied",user="viewer"} 1`,
		`spdk_proxy_calls_total{method="spdk_get_version",outcome="ok",user="admin"} 3`,
		`spdk_proxy_calls_total{method="unknown",outcome="invalid",user="admin"} 2`,
		`spdk_proxy_calls_total{method="unknown",outcome="unauthenticated",user="admin"} 1`,
		`spdk_proxy_call_duration_seconds_count{method="bdev_malloc_create"} 2`,
		`spdk_proxy_denials_total{rule="none"} 1`,
		`spdk_proxy_authentication_failures_total{reason="wrong_credentials"} 1`,
		`spdk_proxy_target_up 1`,
		`spdk_proxy_target_info{release="v26.05",state="runtime"} 1`,
		`spdk_proxy_calls_in_flight 0`,
		`spdk_proxy_queue_length{user="admin"} 0`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	require.NoError(t, b.target.Close())
	assert.Eventually(t, func() bool { return strings.Contains(b.scrape(), "\nspdk_proxy_target_up 0\n") }, long, 10*time.Millisecond)
	b.post(createMalloc)
	assert.Contains(t, b.scrape(), `spdk_proxy_outcomes_total{outcome="unreachable"} 1`)
}

// A call to which SPDK has not responded counts as in flight, and its connection counts as open.
func TestCallsInFlightAreCounted(t *testing.T) {
	b := newBench(t, "v26.05")
	server := httptest.NewUnstartedServer(b.proxy.Handler())
	server.Config = b.proxy.web.HTTP(b.proxy.handler, 0)
	server.Start()
	defer server.Close()
	b.http = server
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Hang})
	done := make(chan got)
	go func() { done <- b.post(`{"id":1,"method":"bdev_get_bdevs"}`) }()
	assert.Eventually(t, func() bool {
		text := b.scrape()
		return strings.Contains(text, "\nspdk_proxy_calls_in_flight 1\n") && strings.Contains(text, `spdk_proxy_target_calls_in_flight{user="admin"} 1`) &&
			strings.Contains(text, "\nspdk_proxy_connections 1\n")
	}, long, 10*time.Millisecond)
	b.target.Crash()
	assert.Equal(t, http.StatusGatewayTimeout, (<-done).StatusCode)
	assert.Contains(t, b.scrape(), `spdk_proxy_outcomes_total{outcome="unknown_outcome"} 1`)
	server.CloseClientConnections()
	assert.Eventually(t, func() bool { return strings.Contains(b.scrape(), "\nspdk_proxy_connections 0\n") }, long, 10*time.Millisecond)
}

func TestOldClientsAreCounted(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(`{"id":1,"method":"bdev_lvol_resize","params":{"name":"x","size":4194304}}`)
	assert.Contains(t, b.scrape(), `spdk_proxy_parameters_translated_total{from="size",method="bdev_lvol_resize",to="size_in_mib",user="admin"} 1`)
	assert.Equal(t, []any{"size to size_in_mib"}, b.lastCall()["translated"])
}

func TestReloadDropsSeries(t *testing.T) {
	b := newBench(t, "v26.05")
	b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"spdk_get_version"}`))
	require.Contains(t, b.scrape(), `user="viewer"`)
	next := *b.config
	next.Users = b.config.Users[:1]
	require.NoError(t, b.proxy.Reload(&next))
	assert.NotContains(t, b.scrape(), "viewer")

	b.proxy.Reloaded(errors.New("x"))
	assert.Contains(t, b.scrape(), "\nspdk_proxy_config_last_reload_successful 0\n")
	b.proxy.Reloaded(nil)
	assert.Contains(t, b.scrape(), "\nspdk_proxy_config_last_reload_successful 1\n")
}

func TestCertificateExpiryIsExported(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.TLS = config.TLS{SelfSignedDir: t.TempDir()} })
	at := b.proxy.cert.Current().Leaf.NotAfter
	assert.Equal(t, map[string]time.Time{"server": at}, b.proxy.observe.Expiries())
	assert.Contains(t, b.scrape(), `spdk_proxy_certificate_expiry_timestamp_seconds{certificate="server"} `)
	assert.Greater(t, time.Until(at), 24*time.Hour)

	// After a reload, the expiry of the client CAs is reported.
	dir := b.config.TLS.SelfSignedDir
	_, err := cert.Load(cert.Source{SelfSignedDir: dir, ReadFile: os.ReadFile}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	next := *b.config
	next.TLS.ClientCAFile = filepath.Join(dir, "tls.crt")
	require.NoError(t, b.proxy.Reload(&next))
	assert.Equal(t, map[string]time.Time{"server": at, "client_ca": at}, b.proxy.observe.Expiries())
	next.TLS.ClientCAFile = ""
	require.NoError(t, b.proxy.Reload(&next))
	assert.NotContains(t, b.proxy.observe.Expiries(), "client_ca")
}

func TestTokenExpiryIsExported(t *testing.T) {
	sum := strings.Repeat("0", 63)
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Users[1].TokenHashes = []string{
			"sha256:" + sum + "0", // never expires
			"sha256:" + sum + "1 not_after=2031-01-31T00:00:00Z", "sha256:" + sum + "2 not_after=2030-01-31T00:00:00Z",
		}
	})
	assert.Contains(t, b.scrape(), `spdk_proxy_token_expiry_timestamp_seconds{user="viewer"} 1.896048e+09`)
	assert.NotContains(t, b.scrape(), `token_expiry_timestamp_seconds{user="admin"}`)
	next := *b.config
	next.Users = slices.Clone(next.Users)
	next.Users[1].TokenHashes = nil
	require.NoError(t, b.proxy.Reload(&next))
	assert.NotContains(t, b.scrape(), "token_expiry_timestamp_seconds{")
}

func TestUntrustedPeerIsCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("listens as another user, which takes root")
	}
	b := newBench(t, "v26.05")
	assert.Contains(t, b.scrape(), "\nspdk_proxy_target_stranger 0\n")
	b.target.Crash()
	require.NoError(t, os.RemoveAll(b.target.Socket()))
	// unlike a directory from t.TempDir, other users can access this directory
	dir, err := os.MkdirTemp("", "stranger-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	listening := make(chan net.Listener)
	go func() {
		// the thread's user is changed below, so the thread must end with this goroutine
		runtime.LockOSThread()
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 1234, ^uintptr(0))
		l, _ := net.Listen("unix", filepath.Join(dir, "s"))
		listening <- l
	}()
	l := <-listening
	require.NotNil(t, l)
	defer func() { _ = l.Close() }()
	require.NoError(t, os.Symlink(filepath.Join(dir, "s"), b.target.Socket()))
	// Retry, because the proxy briefly caches the information that no process was listening.
	require.Eventually(t, func() bool { return strings.Contains(b.scrape(), "\nspdk_proxy_target_stranger 1\n") }, time.Minute, 10*time.Millisecond)
}

func TestLearningIsCounted(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Learning = true })
	g := b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc))
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	assert.Equal(t, "learn", b.lastCall()["decision"])
	text := b.scrape()
	assert.Contains(t, text, "\nspdk_proxy_learned_total 1\n")
	assert.Contains(t, text, "\nspdk_proxy_learning_users 2\n")
	next := *b.config
	next.Learning = false
	require.NoError(t, b.proxy.Reload(&next))
	assert.Contains(t, b.scrape(), "\nspdk_proxy_learning_users 0\n")
	assert.Contains(t, text, `spdk_proxy_calls_total{method="bdev_malloc_create",outcome="ok",user="viewer"} 1`)
	assert.Contains(t, text, `spdk_proxy_denials_total{rule="none"} 0`)
}
