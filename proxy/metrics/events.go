package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// events contains all counters except those of calls.
type events struct {
	denied        [denialKinds]prometheus.Counter
	logins        [loginFailures]prometheus.Counter
	translations  *prometheus.CounterVec
	auditLines    prometheus.Counter
	auditFailures prometheus.Counter
	auditMerged   prometheus.Counter
	learned       prometheus.Counter
	panics        prometheus.Counter
	reloaded      prometheus.Counter
	refused       prometheus.Counter // refused reloads
	lastReload    prometheus.Gauge   // 1 if the last reload was applied, 0 if it was refused
	lastReloadAt  prometheus.Gauge   // when a configuration was last applied
}

func newEvents(r prometheus.Registerer) events {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	reloads := counter("config_reloads_total", "Reloads of the proxy's configuration, by result.", "result")
	e := events{
		translations:  counter("parameters_translated_total", "Parameters of old clients that were renamed for the target's release.", "user", "method", "from", "to"),
		auditLines:    counter("audit_lines_total", "Lines written to the audit log.").WithLabelValues(),
		auditFailures: counter("audit_failures_total", "Lines of the audit log that were written to the ordinary log instead, and other failures of its file.").WithLabelValues(),
		auditMerged:   counter("audit_merged_total", "Unauthenticated requests that share a line in the audit log with others.").WithLabelValues(),
		learned:       counter("learned_total", "Calls that no role allows, but that were executed because the user is in learning mode.").WithLabelValues(),
		panics:        counter("panics_total", "Panics in the proxy. Each is a bug in the proxy; the log contains the stack.").WithLabelValues(),
		reloaded:      reloads.WithLabelValues("success"),
		refused:       reloads.WithLabelValues("failure"),
		lastReload:    gauge("config_last_reload_successful", "Whether the last reload of the proxy's configuration succeeded; 1 before the first."),
		lastReloadAt:  gauge("config_last_reload_success_timestamp_seconds", "Time of the last successful load of the proxy's configuration, in seconds since 1970."),
	}
	denials := counter("denials_total", "Refused calls of authenticated users, by the kind of rule that refused them (none: no rule allows the call).", "rule")
	for k := range denialKinds {
		e.denied[k] = denials.WithLabelValues(k.String())
	}
	logins := counter("authentication_failures_total", "Requests that could not be authenticated, by reason.", "reason")
	for f := range loginFailures {
		e.logins[f] = logins.WithLabelValues(f.String())
	}
	e.lastReload.Set(1)
	e.lastReloadAt.Set(seconds(time.Now())) // the configuration was loaded at startup
	return e
}

// Denied counts a refused call by the kind of rule that refused it.
func (m *Metrics) Denied(by Denial) { m.denied[by].Inc() }

// LoginFailed counts a request that could not be authenticated.
func (m *Metrics) LoginFailed(why LoginFailure) { m.logins[why].Inc() }

// Translated counts a call's parameter that the proxy has renamed for the target's release. The
// names come from the schema.
func (m *Metrics) Translated(user, method, from, to string) {
	m.mu.RLock()
	defer m.mu.RUnlock() // no concurrent reload may delete this user's series
	if !m.users[user] {
		user = ""
	}
	m.translations.WithLabelValues(user, method, from, to).Inc()
}

// AuditLine counts a line of the audit log.
func (m *Metrics) AuditLine() { m.auditLines.Inc() }

// AuditFailed counts a line of the audit log that had to be written to the ordinary log, or another
// failure of the audit log's file.
func (m *Metrics) AuditFailed() { m.auditFailures.Inc() }

// AuditMerged counts a request that shares its line of the audit log with other requests.
func (m *Metrics) AuditMerged() { m.auditMerged.Inc() }

// Reloaded records the outcome of a reload of the proxy's configuration; nil means success.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.refused.Inc()
		m.lastReload.Set(0)
		return
	}
	m.reloaded.Inc()
	m.lastReload.Set(1)
	m.lastReloadAt.Set(seconds(time.Now()))
}

// Learned counts a call that no role allows, but that was executed because of learning mode.
func (m *Metrics) Learned() { m.learned.Inc() }

func (m *Metrics) Panicked() { m.panics.Inc() }
