package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// UnknownMethod is the label of methods that are not in the schema.
const UnknownMethod = "unknown"

// buckets contains the upper bounds of the buckets of all histograms, in seconds. A simulated
// target responds in 50 µs, a real target polls every 4 ms, and inflating a volume takes minutes.
var buckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// Options configures New.
type Options struct {
	Version string       // version of this program
	Methods []string     // methods with labels of their own
	State   func() State // called at each scrape
	Log     *slog.Logger // may be nil
}

// Metrics contains the metrics of one proxy. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	methods  map[string]bool

	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	outcome  [outcomes]prometheus.Counter
	events
	freezes freezes

	mu     sync.RWMutex
	users  map[string]bool
	series map[seriesKey]series // cache, so that a call needs no look-up by labels
}

type seriesKey struct {
	user, method string
	outcome      Outcome
}

type series struct {
	calls    prometheus.Counter
	duration prometheus.Observer // nil if the call did not reach SPDK
}

const namespace = "spdk_proxy"

// New returns the Metrics of a proxy without users.
func New(opts Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		methods:  make(map[string]bool, len(opts.Methods)),
		series:   map[seriesKey]series{},
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "calls_total",
			Help: "Calls that ended, by user, method (unknown: not in the schema) and outcome.",
		}, []string{"user", "method", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "call_duration_seconds", Buckets: buckets,
			Help: "Time from a call's arrival to its response, for calls that were sent to SPDK.",
		}, []string{"method"}),
	}
	for _, name := range opts.Methods {
		m.methods[name] = true
	}
	byOutcome := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "outcomes_total",
		Help: "Calls that ended, by outcome. Unlike those of calls_total, all series exist from the start, so that the first event is visible as an increase.",
	}, []string{"outcome"})
	for o := range outcomes {
		m.outcome[o] = byOutcome.WithLabelValues(o.String())
	}
	m.registry.MustRegister(m.calls, m.duration, byOutcome, buildInfo(opts.Version), startTime(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.events = newEvents(m.registry)
	m.freezes = newFreezes(m.registry)
	if opts.State != nil {
		m.registry.MustRegister(&stateCollector{metrics: m, read: opts.State})
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
	return m
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1; the labels are the versions of the proxy and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// startTime returns a metric with the start time of the proxy. It is needed because
// process_start_time_seconds is missing if the service's /proc shows only the service's own
// processes.
func startTime() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "start_time_seconds", Help: "When the proxy started, in seconds since 1970.",
	})
	g.Set(seconds(time.Now()))
	return g
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// Handler returns the handler for scrapes. It does not check who may read the metrics.
func (m *Metrics) Handler() http.Handler { return m.handler }

var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// ContentType is the content type of Text.
var ContentType = string(textFormat)

// Text returns the metrics in Prometheus' text format.
func (m *Metrics) Text() (string, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return "", fmt.Errorf("gather the metrics: %w", err)
	}
	var text strings.Builder
	encoder := expfmt.NewEncoder(&text, textFormat)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return "", fmt.Errorf("write the metrics: %w", err)
		}
	}
	return text.String(), nil
}

// SetUsers sets the users with labels of their own. It deletes the series of all other users.
func (m *Metrics) SetUsers(names []string) {
	users := make(map[string]bool, len(names))
	for _, name := range names {
		users[name] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.users {
		if !users[name] {
			m.calls.DeletePartialMatch(prometheus.Labels{"user": name})
			m.translations.DeletePartialMatch(prometheus.Labels{"user": name})
		}
	}
	for key := range m.series {
		if key.user != "" && !users[key.user] {
			delete(m.series, key)
		}
	}
	m.users = users
}

// Call counts a call that has ended.
func (m *Metrics) Call(user, method string, outcome Outcome, took time.Duration) {
	m.outcome[outcome].Inc()
	if !m.methods[method] {
		method = UnknownMethod
	}
	s := m.seriesOf(user, method, outcome)
	s.calls.Inc()
	if s.duration != nil {
		s.duration.Observe(took.Seconds())
	}
}

func (m *Metrics) seriesOf(user, method string, outcome Outcome) series {
	m.mu.RLock()
	if !m.users[user] {
		user = ""
	}
	s, ok := m.series[seriesKey{user, method, outcome}]
	m.mu.RUnlock()
	if ok {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.users[user] { // a reload may have removed the user
		user = ""
	}
	s.calls = m.calls.WithLabelValues(user, method, outcome.String())
	if outcome.reachedSPDK() {
		s.duration = m.duration.WithLabelValues(method)
	}
	m.series[seriesKey{user, method, outcome}] = s
	return s
}
