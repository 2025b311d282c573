package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func scrape(t testing.TB, m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

func filled() *Metrics {
	m := New(Options{Version: "v1", Methods: []string{"bdev_get_bdevs", "bdev_lvol_create"}, State: func() State {
		return State{
			Connections: 3, Closed: 9, InFlight: 2, Sessions: 4, Certificates: map[string]time.Time{"server": time.Unix(1800000000, 0)},
			Tokens: map[string]time.Time{"ann": time.Unix(1900000000, 0)}, Learning: 2,
			Target: TargetState{Up: true, UntrustedPeer: true, Release: "v26.05", Phase: "runtime", Connections: 1, Reconnects: 4, Loads: map[string]Load{"ann": {5, 6}, "stranger": {1, 7}}},
			Saved:  &SavedState{Pending: true, Missing: 3, Lost: 2, Chosen: true},
		}
	}})
	m.SetUsers([]string{"ann", "bob"})
	for o := range outcomes {
		m.Call("ann", "bdev_get_bdevs", o, 8*time.Millisecond)
	}
	m.Call("bob", "bdev_get_bdevs", OK, time.Second)
	m.Translated("bob", "bdev_lvol_create", "size", "size_in_mib")
	m.Denied(ByQuota)
	m.LoginFailed(WrongCredentials)
	m.AuditLine()
	m.AuditMerged()
	m.AuditFailed()
	m.Reloaded(nil)
	m.Reloaded(errors.New("a mistake"))
	m.Learned()
	return m
}

// Text returns the same metrics as a scrape.
func TestTextMatchesScrape(t *testing.T) {
	m := filled()
	scraped := scrape(t, m)
	text, err := m.Text()
	require.NoError(t, err)
	for _, line := range strings.Split(scraped, "\n") {
		if strings.HasPrefix(line, "spdk_proxy_") {
			assert.Contains(t, text, line+"\n")
		}
	}
	assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8", strings.Split(ContentType, "; escaping")[0])
}

// Dashboards and alerts depend on the bounds of the histograms' buckets.
func TestBucketsMatchTheAlerts(t *testing.T) {
	var bounds []string
	for _, found := range regexp.MustCompile(`(?m)^spdk_proxy_call_duration_seconds_bucket\{method="bdev_get_bdevs",le="([^"]+)"\}`).FindAllStringSubmatch(scrape(t, filled()), -1) {
		bounds = append(bounds, found[1])
	}
	assert.Equal(t, []string{
		"5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5",
		"1", "2.5", "5", "10", "30", "60", "300", "1800", "+Inf",
	}, bounds)
}

func TestScrapeContainsAllMetrics(t *testing.T) {
	text := scrape(t, filled())
	for _, line := range []string{
		`spdk_proxy_calls_total{method="bdev_get_bdevs",outcome="unknown_outcome",user="ann"} 1`,
		`spdk_proxy_outcomes_total{outcome="ok"} 2`,
		`spdk_proxy_call_duration_seconds_count{method="bdev_get_bdevs"} 4`, // only calls that reached SPDK
		`spdk_proxy_call_duration_seconds_bucket{method="bdev_get_bdevs",le="0.01"} 3`,
		`spdk_proxy_parameters_translated_total{from="size",method="bdev_lvol_create",to="size_in_mib",user="bob"} 1`,
		`spdk_proxy_denials_total{rule="quota"} 1`,
		`spdk_proxy_denials_total{rule="tenant"} 0`,
		`spdk_proxy_authentication_failures_total{reason="wrong_credentials"} 1`,
		`spdk_proxy_audit_lines_total 1`,
		`spdk_proxy_audit_merged_total 1`,
		`spdk_proxy_audit_failures_total 1`,
		`spdk_proxy_config_reloads_total{result="success"} 1`,
		`spdk_proxy_config_reloads_total{result="failure"} 1`,
		`spdk_proxy_config_last_reload_successful 0`,
		`spdk_proxy_learned_total 1`,
		`spdk_proxy_target_config_saved_timestamp_seconds 0`,
		`spdk_proxy_target_config_save_pending 1`,
		`spdk_proxy_target_config_save_failed 0`,
		`spdk_proxy_target_config_missing 3`,
		`spdk_proxy_target_config_not_restorable 2`,
		`spdk_proxy_target_config_chosen 1`,
		`spdk_proxy_token_expiry_timestamp_seconds{user="ann"} 1.9e+09`,
		`spdk_proxy_learning_users 2`,
		`spdk_proxy_target_stranger 1`,
		`spdk_proxy_panics_total 0`,
		`spdk_proxy_connections 3`,
		`spdk_proxy_connections_closed_total 9`,
		`spdk_proxy_calls_in_flight 2`,
		`spdk_proxy_console_sessions 4`,
		`spdk_proxy_certificate_expiry_timestamp_seconds{certificate="server"} 1.8e+09`,
		`spdk_proxy_target_up 1`,
		`spdk_proxy_target_info{release="v26.05",state="runtime"} 1`,
		`spdk_proxy_target_connections 1`,
		`spdk_proxy_target_reconnects_total 4`,
		`spdk_proxy_target_calls_in_flight{user="ann"} 5`,
		`spdk_proxy_target_calls_in_flight{user="bob"} 0`,
		`spdk_proxy_target_calls_in_flight{user=""} 1`,
		`spdk_proxy_queue_length{user="ann"} 6`,
		`spdk_proxy_queue_length{user=""} 7`,
	} {
		assert.Contains(t, text, "\n"+line+"\n")
	}
	assert.Regexp(t, `spdk_proxy_build_info\{goversion="go1[^"]*",version="v1"\} 1`, text)
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "spdk_proxy_start_time_seconds"} {
		assert.Contains(t, text, "\n"+name+" ")
	}
	assert.NotContains(t, text, `"stranger"`)
}

func TestOutcomeSeriesExistFromTheStart(t *testing.T) {
	text := scrape(t, New(Options{}))
	for o := range outcomes {
		assert.Contains(t, text, fmt.Sprintf("spdk_proxy_outcomes_total{outcome=%q} 0", o))
	}
	assert.Contains(t, text, `spdk_proxy_config_last_reload_successful 1`)
	assert.NotContains(t, text, "target_config", "the configuration is not saved")
}

func TestNamesFollowPrometheusConventions(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, filled()))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// Names that clients invent do not create series.
func TestNumberOfLabelsIsLimited(t *testing.T) {
	m := New(Options{Methods: []string{"bdev_get_bdevs"}})
	m.SetUsers([]string{"ann"})
	for i := range 1000 {
		m.Call(fmt.Sprint("user", i), fmt.Sprint("method", i), Invalid, 0)
		m.Call("ann", fmt.Sprint("method\n\"", i), Invalid, 0)
	}
	assert.Equal(t, 2, testutil.CollectAndCount(m.calls))
	assert.Len(t, m.series, 2)
	text := scrape(t, m)
	assert.Contains(t, text, `spdk_proxy_calls_total{method="unknown",outcome="invalid",user=""} 1000`)
	assert.Contains(t, text, `spdk_proxy_calls_total{method="unknown",outcome="invalid",user="ann"} 1000`)
}

func TestSeriesOfRemovedUsersAreDeleted(t *testing.T) {
	m := filled()
	m.SetUsers([]string{"ann", "eve"})
	text := scrape(t, m)
	assert.NotContains(t, text, `"bob"`)
	assert.Contains(t, text, `user="ann"`, "the series of remaining users are kept")
	m.Call("bob", "bdev_get_bdevs", OK, 0) // simulates a call that began before the reload
	m.Translated("bob", "bdev_lvol_create", "size", "size_in_mib")
	assert.NotContains(t, scrape(t, m), `"bob"`)

	m.SetUsers([]string{"bob"})
	m.Call("bob", "bdev_get_bdevs", OK, 0)
	assert.Contains(t, scrape(t, m), `spdk_proxy_calls_total{method="bdev_get_bdevs",outcome="ok",user="bob"} 1`, "the count starts again")
}

// Calls, reloads and scrapes may run concurrently, as the race detector checks.
func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	m := New(Options{Methods: []string{"a", "b"}})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 500 {
				switch user := fmt.Sprint("u", n%3); i {
				case 0:
					m.SetUsers([]string{"u0", fmt.Sprint("u", 1+n%2)})
				default:
					m.Call(user, "a", Outcome(n%int(outcomes)), 0)
					m.Translated(user, "a", "x", "y")
				}
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			scrape(t, m)
		}
	})
	wg.Wait()
	m.SetUsers(nil)
	assert.NotContains(t, scrape(t, m), `user="u`)
}

// Each outcome has a distinct name.
func TestNamesAreDistinct(t *testing.T) {
	names := map[string]bool{}
	for o := range outcomes {
		names[o.String()] = true
	}
	assert.Len(t, names, int(outcomes))
	assert.NotContains(t, names, "")
}

func TestCountingACallDoesNotAllocate(t *testing.T) {
	m := filled()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		m.Call("ann", "bdev_get_bdevs", OK, time.Millisecond)
		m.Call("nobody", "nothing", Unauthenticated, time.Millisecond)
	}))
}

func BenchmarkCall(b *testing.B) {
	m := filled()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Call("ann", "bdev_get_bdevs", OK, 8*time.Millisecond)
		}
	})
}
