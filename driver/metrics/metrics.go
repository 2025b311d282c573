// Package metrics records the driver's work as Prometheus metrics: CSI calls by method and code,
// and the resulting calls to targets. It also exports counts and states from other sources: the I/O
// of published volumes, and the state of volumes staged on a node. It does not include the metrics
// of proxies and targets, which the proxies export (see packages proxy/metrics and
// proxy/targetmetrics).
//
// The number of series is bounded, because only CSI and SPDK methods, configured targets, and
// published or staged volumes have series. Package metrics must not depend on gRPC or on what a
// call does.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// buckets contains the histogram buckets in seconds. They range from a query that the target
// answers at its next poll to a file system check before a mount.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// Metrics contains the metrics of one driver. A nil *Metrics counts nothing. Metrics is safe for
// concurrent use.
type Metrics struct {
	handler        http.Handler
	operations     *prometheus.CounterVec
	duration       *prometheus.HistogramVec
	inFlight       *prometheus.GaugeVec
	targetCalls    *prometheus.CounterVec
	targetDuration *prometheus.HistogramVec
	targetUp       *prometheus.GaugeVec
	reloaded       *prometheus.GaugeVec

	lvstoreTotal, lvstoreFree, lvstorePromised, lvstoreChain *prometheus.GaugeVec

	findings, checked *prometheus.GaugeVec
	volumes           *volumes
	nodeVolumes       *nodeVolumes
	replicatedVolumes *replicatedVolumes
}

// An Lvstore describes the space of an lvstore, in bytes.
type Lvstore struct {
	Name        string
	Total, Free int64
	// Promised is the sum of the sizes of all volumes, plus the clusters that only snapshots
	// occupy.
	Promised int64
	// LongestChain is the number of snapshots below the volume with the longest chain.
	LongestChain int
}

const namespace = "spdk_csi"

// New returns the metrics of a driver of the given version.
func New(version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{
		operations:     counter("operations_total", "CSI calls that ended, by method and gRPC code.", "method", "code"),
		duration:       histogram("operation_duration_seconds", "Time that CSI calls took.", "method"),
		inFlight:       gauge("operations_in_flight", "CSI calls in progress.", "method"),
		targetCalls:    counter("target_calls_total", "SPDK RPCs that ended, by target, method and outcome.", "target", "method", "outcome"),
		targetDuration: histogram("target_call_duration_seconds", "Time that SPDK RPCs took, including the way to the target.", "target"),
		targetUp:       gauge("target_up", "Whether the target responded to the last SPDK RPC, even with an error. Before the first RPC, there is no series.", "target"),
	}
	m.reloaded = gauge("config_last_reload_successful", "Whether the controller's configuration was valid when it was last read. If not, the previous one is in effect.")
	m.lvstoreTotal = gauge("lvstore_total_bytes", "Size of an lvstore, as last read.", "target", "lvstore")
	m.lvstoreFree = gauge("lvstore_free_bytes", "Space of an lvstore that no volume or snapshot occupies, as last read.", "target", "lvstore")
	m.lvstorePromised = gauge("lvstore_promised_bytes", "Sizes of an lvstore's volumes, and space that only snapshots occupy. If more than lvstore_total_bytes, thin volumes can fill the lvstore.", "target", "lvstore")
	m.lvstoreChain = gauge("lvstore_longest_chain_snapshots", "Snapshots, including internal ones for clones, below the volume in an lvstore that has the most. At 64, no more are taken of it.", "target", "lvstore")
	m.volumes = newVolumes()
	m.nodeVolumes, m.replicatedVolumes = newNodeVolumes(), newReplicatedVolumes()
	for _, outcome := range []string{"ok", "failed"} {
		m.nodeVolumes.reconnects.WithLabelValues(outcome) // create the series now, so that alerts notice the first attempt
	}
	m.findings = gauge("findings", "What the last check of a target found, by kind: leftovers, interrupted operations, exports open to every host.", "target", "kind")
	m.checked = gauge("last_check_timestamp_seconds", "When a target was last checked.", "target")
	build := gauge("build_info", "1; the labels are the versions of the driver and of Go.", "version", "goversion")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.operations, m.duration, m.inFlight, m.targetCalls, m.targetDuration, m.targetUp, m.reloaded, m.lvstoreTotal, m.lvstoreFree, m.lvstorePromised, m.lvstoreChain, m.findings, m.checked, m.volumes, m.nodeVolumes, m.replicatedVolumes, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	return m
}

// Handler returns the HTTP handler for scrapes.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Begin counts a CSI call. The caller must call ended with the gRPC code when the call ends.
func (m *Metrics) Begin(method string) (ended func(code string)) {
	if m == nil {
		return func(string) {}
	}
	began := time.Now()
	m.inFlight.WithLabelValues(method).Inc()
	return func(code string) {
		m.inFlight.WithLabelValues(method).Dec()
		m.operations.WithLabelValues(method, code).Inc()
		m.duration.WithLabelValues(method).Observe(time.Since(began).Seconds())
	}
}

// TargetCall counts an RPC to a target.
func (m *Metrics) TargetCall(target, method, outcome string, took time.Duration) {
	if m == nil {
		return
	}
	m.targetCalls.WithLabelValues(target, method, outcome).Inc()
	m.targetDuration.WithLabelValues(target).Observe(took.Seconds())
}

// TargetUp records whether a target responded. An error counts as a response.
func (m *Metrics) TargetUp(target string, up bool) {
	if m == nil {
		return
	}
	m.targetUp.WithLabelValues(target).Set(number(up))
}

// Reloaded records whether the configuration was valid when it was last read.
func (m *Metrics) Reloaded(sound bool) {
	if m != nil {
		m.reloaded.WithLabelValues().Set(number(sound))
	}
}

// Lvstores records the space of all lvstores of a target.
func (m *Metrics) Lvstores(target string, all []Lvstore) {
	if m == nil {
		return
	}
	for _, g := range []*prometheus.GaugeVec{m.lvstoreTotal, m.lvstoreFree, m.lvstorePromised, m.lvstoreChain} {
		g.DeletePartialMatch(prometheus.Labels{"target": target}) // volumes that no longer exist
	}
	for _, l := range all {
		m.lvstoreTotal.WithLabelValues(target, l.Name).Set(float64(l.Total))
		m.lvstoreFree.WithLabelValues(target, l.Name).Set(float64(l.Free))
		m.lvstorePromised.WithLabelValues(target, l.Name).Set(float64(l.Promised))
		m.lvstoreChain.WithLabelValues(target, l.Name).Set(float64(l.LongestChain))
	}
}

// Findings records how many findings of each kind a check of a target returned. If counts is nil,
// it removes the target's series.
func (m *Metrics) Findings(target string, counts map[string]int) {
	if m == nil {
		return
	}
	if counts == nil {
		m.findings.DeletePartialMatch(prometheus.Labels{"target": target})
		m.checked.DeleteLabelValues(target)
		return
	}
	for kind, n := range counts {
		m.findings.WithLabelValues(target, kind).Set(float64(n))
	}
	m.checked.WithLabelValues(target).SetToCurrentTime()
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
