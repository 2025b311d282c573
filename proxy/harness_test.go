package proxy

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// These are requests and headers as clients write them.
const (
	snapshotMethod      = "bdev_lvol_snapshot"
	safeSnapshotMethod  = "spdkgate_lvol_snapshot"
	barrierMethod       = "spdkgate_lvol_snapshot_barrier"
	deleteMethod        = "bdev_lvol_delete"
	safeDeleteMethod    = "spdkgate_lvol_delete"
	decoupleMethod      = "bdev_lvol_decouple_parent"
	inflateMethod       = "bdev_lvol_inflate"
	metricsMethod       = "spdkgate_get_metrics"
	targetMetricsMethod = "spdkgate_get_target_metrics"
	notificationsMethod = "notify_get_notifications"
	sessionCookie       = "__Host-spdkgate"
	flowCookie          = "__Host-spdkgate-oidc"
	csrfHeader          = "X-Csrf-Token"
	backgroundHeader    = "X-Background"
	eventStreamType     = "text/event-stream"

	statusClientGone = 499
)

const long = time.Minute // a timeout that no passing test reaches

// A bench is a proxy in front of a simulated target, with the proxy's log.
type bench struct {
	t      *testing.T
	target *spdktest.Target
	config *config.Config
	proxy  *Server
	http   *httptest.Server
	log    *logtest.Log
}

const (
	adminPassword  = "correct horse"
	viewerPassword = "battery staple"
)

var hashes = sync.OnceValue(func() map[string]string {
	made := map[string]string{}
	for _, password := range []string{adminPassword, viewerPassword} {
		h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			panic(err)
		}
		made[password] = string(h)
	}
	return made
})

func testConfig(socket string) *config.Config {
	c := config.Default()
	c.Listen = "127.0.0.1:0"
	c.TLS.InsecurePlaintext = true
	c.Target.Socket = socket
	c.Users = []config.User{
		{Name: "admin", PasswordHash: hashes()[adminPassword], Roles: []string{"admin"}},
		{Name: "viewer", PasswordHash: hashes()[viewerPassword], Roles: []string{"viewer"}},
	}
	c.Roles = map[string]config.Role{"viewer": {Allow: rules("spdk_get_version", "*_get_*")}}
	return &c
}

// rules returns unconditional rules.
func rules(globs ...string) (list []policy.Rule) {
	for _, glob := range globs {
		list = append(list, policy.Rule{Method: glob})
	}
	return list
}

func newBench(t *testing.T, release string, change ...func(*config.Config)) *bench {
	return newBenchWith(t, spdktest.Options{Release: rpcschema.MustRelease(release)}, change...)
}

// newSafeBench creates a proxy for a target that does not load lvstores written by hosts, as
// tenants require.
func newSafeBench(t *testing.T, release string, change ...func(*config.Config)) *bench {
	return newBenchWith(t, spdktest.Options{Release: rpcschema.MustRelease(release), ExamineListed: true}, change...)
}

func newBenchWith(t *testing.T, opts spdktest.Options, change ...func(*config.Config)) *bench {
	target, err := spdktest.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	b := &bench{t: t, target: target, config: testConfig(target.Socket()), log: new(logtest.Log)}
	for _, f := range change {
		f(b.config)
	}
	b.proxy, err = NewServer(b.config, Options{Log: config.NewLogger(b.log, config.Log{Format: b.config.Log.Format, Level: slog.LevelDebug})})
	require.NoError(t, err)
	b.http = httptest.NewServer(b.proxy.Handler())
	t.Cleanup(func() { b.http.Close(); _ = b.proxy.target.Close() })
	return b
}

// A got is a response as a client receives it.
type got struct {
	*http.Response
	body string
}

func (g got) code(t *testing.T) int {
	var r struct {
		Error jsonrpc.Error
	}
	require.NoError(t, json.Unmarshal([]byte(g.body), &r), g.body)
	return r.Error.Code
}

func (b *bench) do(method, path, user, password string, body io.Reader, header ...string) got {
	r, err := http.NewRequest(method, b.http.URL+path, body)
	require.NoError(b.t, err)
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Client().Do(r)
	require.NoError(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return got{resp, string(text)}
}

func (b *bench) post(body string) got {
	return b.do("POST", "/", "admin", adminPassword, strings.NewReader(body))
}

// postTogether sends each call in a separate request; all requests are concurrent.
func (b *bench) postTogether(user, password string, calls []string) []got {
	answers := make([]got, len(calls))
	var sending sync.WaitGroup
	for i, call := range calls {
		sending.Go(func() { answers[i] = b.do("POST", "/", user, password, strings.NewReader(call)) })
	}
	sending.Wait()
	return answers
}

func (b *bench) lastCall() map[string]any {
	lines := b.log.Lines(b.t, "call")
	require.NotEmpty(b.t, lines)
	return lines[len(lines)-1]
}

// reached returns the methods of the calls that SPDK received, except for the proxy's own calls.
func (b *bench) reached() (methods []string) {
	for _, c := range b.target.Calls() {
		if c.Method != "spdk_get_version" && c.Method != "notify_get_types" && c.Method != "framework_get_config" {
			methods = append(methods, c.Method)
		}
	}
	return methods
}

// handOver provides users' passwords as systemd credentials.
func handOver(t *testing.T, passwords map[string]string) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for user, password := range passwords {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "secrets_"+user+".hash"), []byte(hashes()[password]+"\n"), 0o600))
	}
}

const createMalloc = `{"id":1,"method":"bdev_malloc_create","params":{"name":"m0","num_blocks":2048,"block_size":512}}`

// documented returns the code blocks in one language from a section (## or ###) of a manual page,
// such as docs/wire.md.
func documented(t *testing.T, page, section, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "# "+section+"\n")
	require.True(t, ok, "%s has no section %q", page, section)
	rest, _, _ = strings.Cut(rest, "\n## ")
	for {
		_, after, more := strings.Cut(rest, "```"+language+"\n")
		if !more {
			require.NotEmpty(t, blocks, "%s: %s has no block of %s", page, section, language)
			return blocks
		}
		block, left, closed := strings.Cut(after, "```")
		require.True(t, closed)
		blocks, rest = append(blocks, block), left
	}
}

// inFlight returns the number of calls of clients that the target is executing. The proxy's own
// calls do not count.
func (b *bench) inFlight() (n int) {
	for user, load := range b.proxy.target.Loads() {
		if user != "" {
			n += load.InFlight
		}
	}
	return n
}
