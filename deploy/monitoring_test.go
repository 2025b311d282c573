package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	driver "github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
)

// series maps each metric to its labels and the labels' values.
type series map[string]map[string][]string

// exposed returns both programs' series after every kind of event has occurred.
func exposed(t *testing.T) series {
	const method = "bdev_get_bdevs"
	m := metrics.New(metrics.Options{Version: "v1", Methods: []string{method}, State: func() metrics.State {
		return metrics.State{Certificates: map[string]time.Time{"server": time.Now()}, Tokens: map[string]time.Time{"user": time.Now()}, Target: metrics.TargetState{Phase: "startup", LoadsWritten: new(true)}, Saved: &metrics.SavedState{}}
	}})
	m.SetUsers([]string{"user"})
	m.Translated("user", method, "a", "b")
	for o := metrics.OK; o <= metrics.Failed; o++ {
		m.Call("user", method, o, time.Second)
	}
	d := driver.New("v1")
	for _, code := range []string{"OK", "Internal", "Unavailable", "DeadlineExceeded", "PermissionDenied", "Unauthenticated"} {
		d.Begin("CreateVolume")(code)
	}
	d.TargetCall("a", method, "ok", time.Second)
	d.TargetUp("a", true)
	d.Reloaded(true)
	d.Findings("a", map[string]int{"unreachable": 0, "orphan": 0})
	d.Volumes([]driver.VolumeIO{{Target: "a", Volume: "v"}})
	d.Lvstores("a", []driver.Lvstore{{Name: "lvs0"}})
	var states []driver.NodeVolume
	for _, k := range monitor.Kinds {
		states = append(states, driver.NodeVolume{Target: "a", Volume: "v-" + string(k), State: string(k), Live: 1, Expected: 1})
	}
	d.NodeVolumes(states)
	d.ReplicatedVolumes(func() []driver.ReplicatedVolume {
		return []driver.ReplicatedVolume{{Volume: "r", InSync: 1, Rebuilt: 0.5}}
	})

	all := series{"up": {"job": {"spdk-proxy"}, "instance": nil}}
	target := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(targetmetrics.New(1).Text(reading()).Plain)
	})
	for _, h := range []http.Handler{m.Handler(), d.Handler(), target} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(w.Body)
		require.NoError(t, err)
		for name, f := range families {
			labels := map[string][]string{"instance": nil, "job": {"spdk-proxy"}} // added by Prometheus
			for _, metric := range f.Metric {
				for _, l := range metric.Label {
					labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
				}
			}
			all[name] = labels
			if strings.HasSuffix(name, "_seconds") {
				all[name+"_bucket"] = labels
			}
		}
	}
	return all
}

// reading returns figures that contain every kind of object that a target can have.
func reading() *figures.Figures {
	return &figures.Figures{
		Up: true, Phase: "runtime", Release: "v26.05", Started: time.Now(), Failures: []figures.Failure{{Method: "nvmf_get_stats"}},
		Stores: []figures.Store{{Name: "lvs0"}}, Volumes: []figures.Volume{{Store: "lvs0", Name: "v", HasIO: true, AllocatedKnown: true, Size: 1}}, Bdevs: []figures.Bdev{{Name: "b"}},
		Histograms: []figures.Histogram{{Bdev: "v", Store: "lvs0", Volume: "v"}, {Bdev: "b"}},
		NVMf:       figures.NVMf{Known: true, Listeners: map[string]int{"TCP": 1}, PollGroups: []figures.PollGroup{{Name: "g"}}},
		ISCSI:      figures.ISCSI{Known: true}, Reactors: []figures.Reactor{{}}, Buffers: []figures.BufferPool{{Module: "bdev", Pool: "small"}},
		Threads: []figures.Thread{{Name: "t"}}, Pollers: []figures.Poller{{Thread: "t", Name: "p"}},
	}
}

var (
	selector = regexp.MustCompile(`\b((?:spdk|process|go)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([a-z, ]+)\)`)
)

// holds checks that all metrics and labels in an expression exist.
func (s series) holds(t *testing.T, expr string) {
	names := selector.FindAllStringSubmatch(expr, -1)
	require.NotEmpty(t, names, expr)
	grouped := map[string]bool{"le": true}
	for _, m := range names {
		labels, ok := s[m[1]]
		if !assert.True(t, ok, "there is no metric %s: %s", m[1], expr) {
			continue
		}
		for name := range labels {
			grouped[name] = true
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			values, ok := labels[l[1]]
			assert.True(t, ok, "%s has no label %s: %s", m[1], l[1], expr)
			for value := range strings.SplitSeq(l[3], "|") {
				assert.True(t, strings.HasPrefix(value, "$") || slices.Contains(values, value), "%s is never %q in %s", l[1], value, expr)
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			assert.True(t, grouped[label], "no label %s: %s", label, expr)
		}
	}
}

// alerts contains the contents of the file with the alert rules.
type alerts struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func readAlerts(t *testing.T) (file alerts) {
	t.Helper()
	text, err := os.ReadFile("monitoring/spdk-proxy.rules.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &file))
	return file
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	all, found := exposed(t), 0
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			found++
			all.holds(t, r.Expr)
			assert.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
			assert.NotEmpty(t, r.Annotations["action"], "%s: say what to do", r.Alert)
		}
	}
	assert.Greater(t, found, 10)
}

var (
	labelTemplate = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	valueTemplate = regexp.MustCompile(`\{\{ \$value[^}]*\}\}`)
	pageName      = regexp.MustCompile(`docs/([a-z-]+\.md)`)
)

// docs/alerts.md lists all alerts, with their summaries and actions.
func TestAlertsPageListsAllRules(t *testing.T) {
	headings := map[string]string{"spdk-proxy": "spdk-proxy and the target", "spdk-csi": "spdk-csi"}
	var tables strings.Builder
	for _, g := range readAlerts(t).Groups {
		require.Contains(t, headings, g.Name)
		fmt.Fprintf(&tables, "\n## %s\n| Alert | Severity, after | Meaning | What to do |\n|---|---|---|---|\n", headings[g.Name])
		for _, r := range g.Rules {
			severity := r.Labels["severity"]
			if r.For != "" {
				severity += ", " + r.For
			}
			summary := labelTemplate.ReplaceAllStringFunc(r.Annotations["summary"], func(label string) string {
				return strings.ToUpper(labelTemplate.FindStringSubmatch(label)[1])
			})
			summary = valueTemplate.ReplaceAllString(summary, "N")
			action := pageName.ReplaceAllString(r.Annotations["action"], "[$1]($1)")
			for _, cell := range []string{summary, action} {
				require.NotContains(t, cell, "|", r.Alert)
				require.NotContains(t, cell, "{{", r.Alert)
			}
			fmt.Fprintf(&tables, "| `%s` | %s | %s | %s |\n", r.Alert, severity, summary, action)
		}
	}
	page, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	const mark = "-update -->\n"
	before, _, ok := strings.Cut(string(page), mark)
	require.True(t, ok)
	updated(t, "../docs/alerts.md", before+mark+tables.String())
}

func TestDashboardsUseExistingMetrics(t *testing.T) {
	for _, name := range []string{"spdk-proxy", "spdk-csi-volumes", "spdk-target", "spdk-tenants"} {
		t.Run(name, func(t *testing.T) { testDashboard(t, "monitoring/"+name+".dashboard.json") })
	}
}

func testDashboard(t *testing.T, path string) {
	var board struct {
		Templating struct {
			List []struct {
				Name  string
				Type  string
				Query any
			}
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	all, ids := exposed(t), map[int]bool{}
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		assert.False(t, ids[p.ID], "panels have ids of their own")
		ids[p.ID] = true
		for _, target := range p.Targets {
			all.holds(t, target.Expr)
		}
	}
	assert.NotEmpty(t, board.Panels)
	variables := []string{"$__rate_interval"}
	for _, v := range board.Templating.List {
		variables = append(variables, "$"+v.Name)
		if q, ok := v.Query.(map[string]any); ok {
			query, _ := q["query"].(string)
			all.holds(t, query)
			label := query[strings.LastIndex(query, ", ")+2 : len(query)-1]
			assert.Contains(t, all[selector.FindStringSubmatch(query)[1]], label, query)
		}
	}
	for _, used := range regexp.MustCompile(`\$[a-z_]+`).FindAllString(string(text), -1) {
		assert.Contains(t, variables, used, "no variable has this name")
	}
	assert.Contains(t, all, "spdk_proxy_build_info", "the dashboard must list the instances")
}
