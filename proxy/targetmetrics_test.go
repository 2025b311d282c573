package proxy

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// readAnew makes the proxy read the target's figures on every request.
func (b *bench) readAnew() {
	b.proxy.observe.ReadEvery(0, figures.NewReader(b.proxy.gate.Schema, b.config.Metrics.LatencyHistograms...))
}

func (b *bench) fill(t *testing.T) {
	b.post(`{"id":1,"method":"bdev_malloc_create","params":{"name":"m0","num_blocks":16384,"block_size":4096}}`)
	b.post(`{"id":1,"method":"bdev_lvol_create_lvstore","params":{"bdev_name":"m0","lvs_name":"lvs0"}}`)
	require.Equal(t, http.StatusOK, b.post(`{"id":1,"method":"bdev_lvol_create","params":{"lvs_name":"lvs0","lvol_name":"v0","size_in_mib":8,"thin_provision":true}}`).StatusCode)
	b.post(`{"id":1,"method":"nvmf_create_transport","params":{"trtype":"TCP"}}`)
	b.post(`{"id":1,"method":"nvmf_create_subsystem","params":{"nqn":"nqn.2026-11.example:a"}}`)
	b.post(`{"id":1,"method":"nvmf_subsystem_add_listener","params":{"nqn":"nqn.2026-11.example:a","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}}`)
}

func (b *bench) scrapeTarget(header ...string) got {
	return b.do("GET", "/metrics/target", "admin", adminPassword, nil, header...)
}

func TestTargetMetricsContainTheTargetsFigures(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.fill(t)
			require.True(t, b.target.DoIO("lvs0/v0", spdkrpc.BdevIOStatBdev{BytesRead: 4096, NumReadOps: 1, ReadLatencyTicks: 1e9 / 4}))
			g := b.scrapeTarget()
			require.Equal(t, http.StatusOK, g.StatusCode, g.body)
			assert.Equal(t, targetmetrics.ContentType, g.Header.Get("Content-Type"))
			for _, line := range []string{
				"spdk_up 1", `spdk_info{release="` + release + `"} 1`, `spdk_lvstore_volumes{lvstore="lvs0"} 1`, `spdk_lvol_size_bytes{lvstore="lvs0",lvol="v0"} 8388608`,
				`spdk_lvol_io_bytes_total{lvstore="lvs0",lvol="v0",op="read"} 4096`, `spdk_lvol_io_latency_seconds_total{lvstore="lvs0",lvol="v0",op="read"} 0.25`,
				"spdk_nvmf_subsystems 1", `spdk_iobuf_retries_total{module="bdev",pool="small"} 0`,
			} {
				assert.Contains(t, g.body, "\n"+line+"\n")
			}
			problems, err := promlint.New(strings.NewReader(g.body)).Lint()
			require.NoError(t, err)
			assert.Empty(t, problems)
			assert.Equal(t, targetMetricsMethod, b.lastCall()["method"], "a scrape is in the log")
		})
	}
}

// Any number of scrapers together cause one read of the target every ten seconds, with or without
// gzip, over HTTPS or as a call.
func TestScrapersShareOneRead(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill(t)
	before := len(b.reached())
	var scrapers sync.WaitGroup
	for i := range 5 {
		scrapers.Go(func() {
			for range 10 {
				g := b.scrapeTarget()
				assert.Equal(t, http.StatusOK, g.StatusCode, i)
			}
		})
	}
	scrapers.Wait()
	made := b.reached()[before:]
	assert.LessOrEqual(t, len(made), 12, "%s", made)
	assert.Contains(t, made, "bdev_get_iostat")

	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	r, err := http.NewRequest(http.MethodGet, b.http.URL+"/metrics/target", nil)
	require.NoError(t, err)
	r.SetBasicAuth("admin", adminPassword)
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	z, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	var answer struct{ Result string }
	require.NoError(t, json.Unmarshal([]byte(b.post(`{"id":1,"method":"spdkgate_get_target_metrics"}`).body), &answer))
	assert.Equal(t, answer.Result, string(plain))
	assert.Equal(t, answer.Result, b.scrapeTarget("Accept-Encoding", "identity").body)
	assert.Len(t, b.reached()[before:], len(made))
}

// If the target is down, a successful response reports this.
func TestTargetMetricsReportATargetThatIsDown(t *testing.T) {
	target, err := spdktest.Start(spdktest.Options{WaitForRPC: true})
	require.NoError(t, err)
	defer func() { _ = target.Close() }()
	b := newBench(t, "v26.05", func(c *config.Config) { c.Target.Socket = target.Socket() })
	b.readAnew()
	g := b.scrapeTarget()
	require.Equal(t, http.StatusOK, g.StatusCode)
	assert.Contains(t, g.body, "\nspdk_up 0\n")
	assert.Contains(t, g.body, "\nspdk_state{state=\"startup\"} 1\n")
	b.post(`{"id":1,"method":"framework_start_init"}`)
	assert.Contains(t, b.scrapeTarget().body, "\nspdk_up 1\n")
	require.NoError(t, target.Close())
	require.Eventually(t, func() bool { return strings.Contains(b.scrapeTarget().body, "\nspdk_state{state=\"unreachable\"} 1\n") }, long, time.Millisecond)
	assert.Contains(t, b.scrapeTarget().body, "\nspdk_up 0\n")
	assert.NotContains(t, b.scrapeTarget().body, "spdk_reactor")
}

// As with the proxy's own metrics, only users without a tenant whose roles allow the method may
// read the target's metrics.
func TestUnauthorizedTargetScrapesAreRefused(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) {
		c.Roles["metrics-of-team"] = config.Role{Allow: rules("*")}
		for i := range c.Users {
			if c.Users[i].Name == teamA {
				c.Users[i].Roles = []string{"metrics-of-team"}
			}
		}
	})
	for _, c := range []struct {
		user, password, decision string
		status                   int
	}{
		{"", "", "unauthenticated", http.StatusUnauthorized},
		{teamB, adminPassword, "deny", http.StatusForbidden},
		// a tenant's user whose role allows everything
		{teamA, adminPassword, "deny", http.StatusForbidden},
		{"admin", adminPassword, "allow", http.StatusOK},
	} {
		g := b.do("GET", "/metrics/target", c.user, c.password, nil)
		assert.Equal(t, c.status, g.StatusCode, c.user)
		assert.Equal(t, c.decision, b.lastCall()["decision"], c.user)
		if c.status != http.StatusOK {
			assert.NotContains(t, g.body, "spdk_")
		}
	}
	assert.Contains(t, b.as(t, teamA, targetMetricsMethod, "", http.StatusForbidden).body, "tenants may not call ")
}

const targetMetricsPage = "docs/target-metrics.md"

// The manual page lists exactly these metrics, and the configurations on the page work together.
func TestAllTargetMetricsAreDocumented(t *testing.T) {
	examples := documented(t, targetMetricsPage, "Scrape", "yaml")
	require.Len(t, examples, 2)
	examples = append(examples, documented(t, targetMetricsPage, "Cost", "yaml")...)
	examples = append(examples, documented(t, targetMetricsPage, "Latency histograms", "yaml")...)
	var roles struct{ Roles map[string]config.Role }
	require.NoError(t, yaml.Unmarshal([]byte(examples[0]), &roles))
	var prometheus struct {
		Scrapes []struct {
			Path string `yaml:"metrics_path"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(examples[1]), &prometheus))
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Roles, c.Users[1].Roles = roles.Roles, []string{"scraper"}
		require.NoError(t, yaml.Unmarshal([]byte(examples[2]), c))
		assert.Equal(t, 5000, c.Metrics.Volumes)
		require.NoError(t, yaml.Unmarshal([]byte(examples[3]), c))
		assert.Equal(t, []string{"lvs0/vol1", "nvme0n1"}, c.Metrics.LatencyHistograms)
		c.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs0"}, Quota: config.Quota{GiB: new(1)}}}
	})
	b.fill(t)
	require.Equal(t, http.StatusOK, b.post(`{"id":1,"method":"bdev_lvol_create","params":{"lvs_name":"lvs0","lvol_name":"vol1","size_in_mib":8}}`).StatusCode)
	b.post(`{"id":1,"method":"bdev_malloc_create","params":{"name":"nvme0n1","num_blocks":16,"block_size":512}}`)
	commands := documented(t, targetMetricsPage, "Latency histograms", "console")
	require.Len(t, commands, 1)
	newest, _, _ := strings.Cut(commands[0], "\n")
	assert.Contains(t, newest, " name=lvs0/vol1 enable=true min_nsec=0 max_nsec=18446744073709551615 ")
	for _, name := range []string{"lvs0/vol1", "nvme0n1"} {
		b.post(`{"id":1,"method":"bdev_enable_histogram","params":{"name":"` + name + `","enable":true,"min_nsec":0,"max_nsec":18446744073709551615}}`)
	}
	b.target.Inject(spdktest.Fault{Method: "iscsi_get_target_nodes", Do: spdktest.Fail})
	b.readAnew()
	b.scrapeTarget()
	b.readAnew()     // with a reader that does not know when methods were last called
	b.scrapeTarget() // reads the first histogram
	g := b.do("GET", prometheus.Scrapes[0].Path, "viewer", viewerPassword, nil)
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)

	page, err := os.ReadFile("../" + targetMetricsPage)
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(page), "\n## List of metrics\n")
	require.True(t, ok)
	list, _, _ = strings.Cut(list, "\n## ")
	said := map[string]bool{}
	for line := range strings.SplitSeq(list, "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for _, m := range code.FindAllStringSubmatch(cells[0], -1) {
			said["spdk_"+m[1]] = true
			for _, label := range code.FindAllStringSubmatch(cells[1], -1) {
				assert.Regexp(t, `spdk_`+m[1]+`(_bucket)?\{([a-z_]+="[^"]*",)*`+label[1]+`="`, g.body, line)
			}
		}
	}
	counted := map[string]bool{}
	for name := range series(t, g.body) {
		counted[name] = true
	}
	assert.Equal(t, said, counted)
}

// The target's metrics are also served at the address without a password.
func TestTargetMetricsAreServedOnLoopback(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Metrics.Listen = "127.0.0.1:0" })
	serve(t, b)
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "serving metrics")) == 1 }, long, time.Millisecond)
	resp, err := http.Get(b.log.Lines(t, "serving metrics")[0]["url"].(string) + "/target")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.True(t, bytes.Contains(text, []byte("\nspdk_up 1\n")), "%s", text)
}
