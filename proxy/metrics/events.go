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
	reloads      attempts
	saves        attempts
}

// attempts are of something that should succeed again and again.
type attempts struct {
	succeeded, failed prometheus.Counter
	lastSucceeded     prometheus.Gauge // 1 or 0
	lastSuccess       prometheus.Gauge // when
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
	tried := func(counterName, gaugeName, what string) attempts {
		c := counter(counterName, "Attempts to "+what+", by result.", "result")
		return attempts{
			succeeded: c.WithLabelValues("success"), failed: c.WithLabelValues("failure"),
			lastSucceeded: gauge(gaugeName+"_successful", "Whether the last attempt to "+what+" succeeded; 1 before the first."),
			lastSuccess:   gauge(gaugeName+"_success_timestamp_seconds", "When it last succeeded to "+what+", in seconds since 1970; 0 before the first."),
		}
	}
	e := events{
		translations: counter("parameters_translated_total", "Parameters of old clients that were renamed for the target's release.", "user", "method", "from", "to"),
		auditLines:   counter("audit_lines_total", "Lines written to the audit log.").WithLabelValues(),
		auditMerged:  counter("audit_merged_total", "Unauthenticated requests that share a line of the audit log with others.").WithLabelValues(),
		reloads:      tried("config_reloads_total", "config_last_reload", "take a new configuration over"),
		saves:        tried("target_config_saves_total", "target_config_last_save", "save the target's configuration"),
	}
	denials := counter("denials_total", "Calls refused to users who are known, by the kind of rule (none: no rule allows it).", "rule")
	for k := range denialKinds {
		e.denied[k] = denials.WithLabelValues(k.String())
	}
	logins := counter("authentication_failures_total", "Requests whose user could not be told, by reason.", "reason")
	for f := range loginFailures {
		e.logins[f] = logins.WithLabelValues(f.String())
	}
	e.reloads.lastSucceeded.Set(1)
	e.reloads.lastSuccess.Set(seconds(time.Now())) // it started with one
	e.saves.lastSucceeded.Set(1)
	return e
}

func (a *attempts) ended(err error) {
	if err != nil {
		a.failed.Inc()
		a.lastSucceeded.Set(0)
		return
	}
	a.succeeded.Inc()
	a.lastSucceeded.Set(1)
	a.lastSuccess.Set(seconds(time.Now()))
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
func (m *Metrics) Reloaded(err error) { m.reloads.ended(err) }

// TargetConfigSaved notes what came of saving the target's configuration.
func (m *Metrics) TargetConfigSaved(err error) { m.saves.ended(err) }
