package proxy

import (
	"context"
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
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema"
)

const observability = "docs/observability.md"

// series returns the names of the metrics in a scrape.
func series(t *testing.T, text string) map[string]bool {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	names := map[string]bool{}
	for name := range families {
		names[name] = true
	}
	return names
}

// The documented configurations of the proxy and Prometheus work together.
func TestDocumentedScrapeConfigurationWorks(t *testing.T) {
	examples := documented(t, observability, "Metrics", "yaml")
	require.Len(t, examples, 3)
	dir := t.TempDir()
	handOver(t, map[string]string{"admin": adminPassword, "prometheus": viewerPassword})
	path := filepath.Join(dir, "config.yaml")
	local := strings.Replace(examples[2], ":9010", ":0", 1)
	require.NoError(t, os.WriteFile(path, []byte("listen: \"127.0.0.1:0\"\n"+examples[0]+local), 0o600))
	c, err := loadAndCheck(path)
	require.NoError(t, err)
	b := newBench(t, "v26.05", func(used *config.Config) {
		used.Users, used.Roles, used.Metrics = c.Users, c.Roles, c.Metrics
	})
	b.post(createMalloc)

	var prometheus struct {
		Scrapes []struct {
			Path string                    `yaml:"metrics_path"`
			Auth struct{ Username string } `yaml:"basic_auth"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(examples[1]), &prometheus))
	scrape := prometheus.Scrapes[0]
	g := b.do("GET", scrape.Path, scrape.Auth.Username, viewerPassword, nil)
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	assert.Regexp(t, `^text/plain; version=0\.0\.4`, g.Header.Get("Content-Type"))
	assert.Contains(t, g.body, `spdk_proxy_calls_total{method="bdev_malloc_create",outcome="ok",user="admin"} 1`)
	assert.Contains(t, g.body, "\nspdk_proxy_target_up 1\n")
	assert.Equal(t, "spdkgate_get_metrics", b.lastCall()["method"], "a scrape is in the log")
	assert.Equal(t, "allow", b.lastCall()["decision"])

	// The scraper's user is not permitted to make other calls. The metrics count its scrapes.
	assert.Equal(t, http.StatusForbidden, b.do("POST", "/", scrape.Auth.Username, viewerPassword, strings.NewReader(createMalloc)).StatusCode)
	again := b.do("GET", scrape.Path, scrape.Auth.Username, viewerPassword, nil).body
	assert.Contains(t, again, `spdk_proxy_calls_total{method="spdkgate_get_metrics",outcome="ok",user="prometheus"} 1`)

	// The metrics are also available through JSON-RPC.
	var answer struct{ Result string }
	require.NoError(t, json.Unmarshal([]byte(b.post(`{"id":1,"method":"spdkgate_get_metrics"}`).body), &answer))
	assert.True(t, series(t, answer.Result)["spdk_proxy_calls_total"])
	assert.Equal(t, http.StatusBadRequest, b.post(`{"id":1,"method":"spdkgate_get_metrics","params":{"a":1}}`).StatusCode)

	// Metrics are available even without a target.
	require.NoError(t, b.target.Close())
	assert.Eventually(t, func() bool {
		g := b.do("GET", scrape.Path, scrape.Auth.Username, viewerPassword, nil)
		return g.StatusCode == http.StatusOK && strings.Contains(g.body, "\nspdk_proxy_target_up 0\n")
	}, long, 1)
}

// Clients that are refused receive no metrics.
func TestUnauthorizedScrapesAreRefused(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) {
		c.Roles["metrics-of-team"] = config.Role{Allow: rules("*")}
		for i := range c.Users {
			if c.Users[i].Name == teamA {
				c.Users[i].Roles = []string{"metrics-of-team"}
			}
		}
	})
	for _, c := range []struct {
		user, password, decision, rule string
		status                         int
	}{
		{"", "", "unauthenticated", "", http.StatusUnauthorized},
		{"admin", "wrong", "unauthenticated", "", http.StatusUnauthorized},
		{teamB, adminPassword, "deny", "no rule allows it", http.StatusForbidden},
		// a tenant's user whose role allows everything
		{teamA, adminPassword, "deny", "tenant team-a", http.StatusForbidden},
		{"admin", adminPassword, "allow", "", http.StatusOK},
	} {
		g := b.do("GET", "/metrics", c.user, c.password, nil)
		assert.Equal(t, c.status, g.StatusCode, c.user)
		line := b.lastCall()
		assert.Equal(t, c.decision, line["decision"], c.user)
		if c.rule != "" {
			assert.Equal(t, c.rule, line["rule"], c.user)
		}
		if c.status != http.StatusOK {
			assert.NotContains(t, g.body, "spdk_proxy_")
		}
	}
	refused := b.as(t, teamA, metricsMethod, "", http.StatusForbidden)
	assert.Contains(t, refused.body, "tenants may not call ")
	assert.NotContains(t, b.as(t, teamA, "rpc.discover", "", http.StatusOK).body, metricsMethod)
}

// Metrics are served without a password at a separate address, which is closed when the server
// stops.
func TestMetricsAreServedOnLoopback(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Metrics.Listen = "127.0.0.1:0" })
	l, err := b.proxy.Listen()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.proxy.Serve(ctx, l) }()
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "serving metrics")) == 1 }, long, 1)
	url := b.log.Lines(t, "serving metrics")[0]["url"].(string)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, status := range map[string]int{"": http.StatusOK, "/debug/pprof/": http.StatusNotFound} {
		resp, err := client.Get(url + path)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, status, resp.StatusCode, path)
		if path == "" {
			assert.True(t, series(t, string(text))["spdk_proxy_target_up"])
		}
	}
	resp, err := client.Post(url, "application/json", strings.NewReader(createMalloc))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)

	taken := *b.config
	taken.Metrics.Listen = ""
	assert.ErrorContains(t, b.proxy.Reload(&taken), "metrics has changed: restart the proxy to apply it")
	stop()
	require.NoError(t, <-ended)
	_, err = client.Get(url)
	require.Error(t, err)
}

// If another local user occupies the metrics address, calls still work. The proxy logs an error,
// and serves metrics once the address is free.
func TestOccupiedMetricsAddressDoesNotPreventCalls(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := newBench(t, "v26.05", func(c *config.Config) { c.Metrics.Listen = squatter.Addr().String() })
	s := serve(t, b)
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "cannot serve metrics")) == 1 }, long, time.Millisecond)
	c := s.dial()
	c.call(version)
	assert.Equal(t, 200, c.answer().StatusCode)

	require.NoError(t, squatter.Close())
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "serving metrics")) == 1 }, long, time.Millisecond)
	assert.Len(t, b.log.Lines(t, "cannot serve metrics"), 1, "logged once")
}

var code = regexp.MustCompile("`([a-z_…]+)`")

// rows returns the cells of a table in a section of the manual page.
func rows(t *testing.T, section string) (found [][]string) {
	text, err := os.ReadFile("../" + observability)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "# "+section+"\n")
	require.True(t, ok, section)
	rest, _, _ = strings.Cut(rest, "\n### ") // the sections about the driver follow
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.SplitSeq(rest, "\n") {
		if strings.HasPrefix(line, "| `") {
			found = append(found, strings.Split(strings.Trim(line, "|"), "|"))
		}
	}
	require.NotEmpty(t, found)
	return found
}

// The metrics on the manual page are exactly those that the proxy exports.
func TestAllMetricsAreDocumented(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, os.Mkdir(saved, 0o700))
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.TLS = config.TLS{SelfSignedDir: t.TempDir()}
		c.Target.Save.Dir = saved
		c.Limits.UserCallsPerSecond = 1000
		c.Users[1].TokenHashes = []string{"sha256:" + strings.Repeat("0", 64) + " not_after=2030-01-31T00:00:00Z"}
	})
	b.post(createMalloc)
	b.post(`{"id":1,"method":"bdev_lvol_resize","params":{"name":"x","size":4194304}}`)
	// make the proxy query the target now rather than later in the background
	b.post(`{"jsonrpc":"2.0","id":1,"method":"spdkgate_target_get_info"}`)
	text := b.scrape()
	said := map[string]bool{}
	for _, row := range rows(t, "List of metrics") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			said["spdk_proxy_"+m[1]] = true
		}
		for _, label := range code.FindAllStringSubmatch(row[1], -1) {
			assert.Regexp(t, `spdk_proxy_[a-z_]+\{([a-z_]+="[^"]*",)*`+label[1]+`="`, text, row[0])
		}
	}
	counted := map[string]bool{}
	for name := range series(t, text) {
		if strings.HasPrefix(name, "spdk_proxy_") {
			counted[name] = true
		}
	}
	assert.Equal(t, said, counted)
}

// The keys of the audit log are exactly those on the manual page.
func TestAuditLogContainsTheDocumentedKeys(t *testing.T) {
	said := map[string]bool{}
	for _, row := range rows(t, "Audit log") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			said[m[1]] = true
		}
	}
	b := newTenantBench(t)
	b.as(t, teamA, "bdev_get_bdevs", `{"name":"lvs-b/none"}`, http.StatusOK)
	b.as(t, teamA, "bdev_lvol_create", `{"lvs_name":"lvs-a","lvol_name":"raised","size_in_mib":4,"clear_method":"none"}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_resize", `{"name":"x","size":4194304}`, http.StatusOK)
	b.do("POST", "/", "admin", adminPassword, strings.NewReader(`[{"id":1,"method":"spdk_get_version"},{"id":2,"method":"no"}]`),
		"X-Request-Id", "r1", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	b.do("POST", "/", "admin", "wrong", strings.NewReader(createMalloc))
	balanced := *b.config
	balanced.LoadBalancers = config.LoadBalancers{Addresses: []string{"127.0.0.1"}, ClientAddress: config.XForwardedFor}
	balancers, err := web.NewBalancers(&balanced)
	require.NoError(t, err)
	b.proxy.web.Balancers = balancers
	b.do("POST", "/", "admin", "wrong", strings.NewReader(createMalloc), "X-Forwarded-For", "192.0.2.1")
	met := map[string]bool{}
	for _, line := range b.log.Lines(t, "call") {
		for key := range line {
			met[key] = true
		}
	}
	for key := range met {
		assert.True(t, said[key], "the page does not list the key %s", key)
	}
	for key := range said {
		assert.True(t, met[key] || key == "credential", "no line has the key %s", key)
	}
	for i := range 20 {
		b.do("GET", "/metrics", fmt.Sprint("nobody", i), "x", nil)
	}
	b.proxy.auditLog.Flush()
	page, err := os.ReadFile("../" + observability)
	require.NoError(t, err)
	for key := range b.log.Lines(t, mergedMessage)[0] {
		assert.Contains(t, string(page), "`"+key+"`")
	}
	assert.Contains(t, string(page), "`"+mergedMessage+"`")
}

// The objects of a call are logged with their kinds, up to a limit.
func TestResourcesAreLogged(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(`{"id":1,"method":"nvmf_subsystem_add_ns","params":{"nqn":"nqn.2026-11.example:a","namespace":{"bdev_name":"lvs0/vol1"}}}`)
	assert.Equal(t, []any{"nqn:nqn.2026-11.example:a", "bdev:lvs0/vol1"}, b.lastCall()["resources"])
	b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"bdev_lvol_delete","params":{"name":"`+strings.Repeat("n", 1000)+`"}}`))
	assert.Equal(t, []any{"bdev:" + strings.Repeat("n", 256)}, b.lastCall()["resources"], "also for denied calls")
	many := strings.TrimSuffix(strings.Repeat(`"b",`, 100), ",")
	b.post(`{"id":1,"method":"bdev_raid_create","params":{"name":"r","raid_level":"raid0","strip_size_kb":64,"base_bdevs":[` + many + `]}}`)
	list := b.lastCall()["resources"].([]any)
	require.Len(t, list, 17)
	assert.Equal(t, "and 85 more", list[16])
	b.post(`{"id":1,"method":"spdk_get_version"}`)
	assert.NotContains(t, b.lastCall(), "resources")
	_, ok := rpcschema.Default().Method(metricsMethod)
	assert.True(t, ok)
}

// A GET request has the same limits as the equivalent call: on memory, on concurrency, and while
// the proxy is stopping.
func TestGETRequestsHaveTheSameLimitsAsCalls(t *testing.T) {
	for _, path := range []string{"/metrics", "/openrpc.json"} {
		b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.UserInFlight = 1 })
		get := func() got { return b.do("GET", path, "admin", adminPassword, nil) }
		require.Equal(t, http.StatusOK, get().StatusCode, path)

		n, err := b.proxy.gate.ReserveFor("admin", gate.MemoryPerUser)
		require.NoError(t, err)
		assert.Equal(t, http.StatusTooManyRequests, get().StatusCode, "%s: memory", path)
		b.proxy.gate.ReleaseFor("admin", n)
		require.Equal(t, http.StatusOK, get().StatusCode, path)

		give, err := b.proxy.target.AcquireSlot(t.Context(), "admin")
		require.NoError(t, err)
		answered := make(chan int)
		go func() { answered <- get().StatusCode }()
		require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond, "%s: turns", path)
		give()
		require.Equal(t, http.StatusOK, <-answered, path)

		b.proxy.gate.Drain()
		b.proxy.gate.RefuseArrivals()
		g := get()
		assert.Equal(t, http.StatusServiceUnavailable, g.StatusCode, "%s: draining", path)
		assert.True(t, g.Close)
		require.Eventually(t, func() bool {
			_, total := b.proxy.gate.MemoryInUse("")
			return total == 0
		}, long, time.Millisecond, "everything is given back")
	}
}
