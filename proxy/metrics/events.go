package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// events are what is counted when it happens, besides calls.
type events struct {
	denied       [denialKinds]prometheus.Counter
	logins       [loginFailures]prometheus.Counter
	translations *prometheus.CounterVec
	auditLines   prometheus.Counter
	auditMerged  prometheus.Counter
	learned      prometheus.Counter
	panics       prometheus.Counter
	reloaded     prometheus.Counter
	refused      prometheus.Counter // reloads
	lastReload   prometheus.Gauge   // 1: taken over, 0: refused
	lastReloadAt prometheus.Gauge   // when it was last taken over
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
		translations: counter("parameters_translated_total", "Parameters of old clients that were renamed for the target's release.", "user", "method", "from", "to"),
		auditLines:   counter("audit_lines_total", "Lines written to the audit log.").WithLabelValues(),
		auditMerged:  counter("audit_merged_total", "Unauthenticated requests that share a line of the audit log with others.").WithLabelValues(),
		learned:      counter("learned_total", "Calls that were let pass because of learning, and would have been refused.").WithLabelValues(),
		panics:       counter("panics_total", "Panics of the proxy, each a fault of its own; the log has their stacks.").WithLabelValues(),
		reloaded:     reloads.WithLabelValues("success"),
		refused:      reloads.WithLabelValues("failure"),
		lastReload:   gauge("config_last_reload_successful", "Whether the last new configuration of the proxy was taken over; 1 before the first."),
		lastReloadAt: gauge("config_last_reload_success_timestamp_seconds", "When the proxy's configuration was last taken over, in seconds since 1970."),
	}
	denials := counter("denials_total", "Calls refused to users who are known, by the kind of rule (none: no rule allows it).", "rule")
	for k := range denialKinds {
		e.denied[k] = denials.WithLabelValues(k.String())
	}
	logins := counter("authentication_failures_total", "Requests whose user could not be told, by reason.", "reason")
	for f := range loginFailures {
		e.logins[f] = logins.WithLabelValues(f.String())
	}
	e.lastReload.Set(1)
	e.lastReloadAt.Set(seconds(time.Now())) // it started with one
	return e
}

// Denied counts a refusal by what refused it.
func (m *Metrics) Denied(by Denial) { m.denied[by].Inc() }

// LoginFailed counts a request without a user.
func (m *Metrics) LoginFailed(why LoginFailure) { m.logins[why].Inc() }

// Translated counts one parameter that was renamed. The names are the schema's.
func (m *Metrics) Translated(user, method, from, to string) {
	m.mu.RLock()
	defer m.mu.RUnlock() // so that no reload ends this user's series meanwhile
	if !m.users[user] {
		user = ""
	}
	m.translations.WithLabelValues(user, method, from, to).Inc()
}

// AuditLine counts a line of the audit log.
func (m *Metrics) AuditLine() { m.auditLines.Inc() }

// AuditMerged counts a request without a line of its own.
func (m *Metrics) AuditMerged() { m.auditMerged.Inc() }

// Reloaded notes what came of a reload of the proxy's configuration.
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

// Learned counts a call that no role allows, and that was let pass.
func (m *Metrics) Learned() { m.learned.Inc() }

// Panicked counts a panic.
func (m *Metrics) Panicked() { m.panics.Inc() }
