package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// newMetrics makes the metrics of a server.
func (s *Server) newMetrics(version string) *metrics.Metrics {
	methods := append([]string{discoverMethod}, consoleMethods...)
	for _, m := range s.schema.Methods() {
		methods = append(methods, m.Name)
	}
	return metrics.New(metrics.Options{Version: version, Methods: methods, State: s.state, Log: s.log})
}

// Reloaded counts a reload in the metrics: as failed if err is not nil, also if the file
// could not be read, so that Reload was not called.
func (s *Server) Reloaded(err error) { s.metrics.Reloaded(err) }

// observe counts a call that has ended.
func (s *Server) observe(c *call, took time.Duration) {
	user, method := c.in.sender.user, c.asked.method
	outcome := outcomeOf(c.answered.answer)
	s.metrics.Call(user, method, outcome, took)
	for _, t := range c.decided.translations {
		s.metrics.Translated(user, method, t.From, t.To)
	}
	switch {
	case c.decided.decision == auditlog.Learned:
		s.metrics.Learned()
	case c.decided.decision == auditlog.Unauthenticated:
		s.metrics.LoginFailed(loginFailureOf(c.answered.err))
	case outcome == metrics.Denied, outcome == metrics.OverQuota:
		s.metrics.Denied(denialOf(c))
	}
}

// outcomes maps the status of an answer to the label of the metrics. Status 200 is SPDK's
// answer, see outcomeOf.
var outcomes = map[int]metrics.Outcome{
	http.StatusBadRequest:            metrics.Invalid,
	http.StatusUnauthorized:          metrics.Unauthenticated,
	http.StatusForbidden:             metrics.Denied,
	http.StatusRequestTimeout:        metrics.ClientGone,
	http.StatusConflict:              metrics.InUse,
	http.StatusRequestEntityTooLarge: metrics.TooLarge,
	http.StatusTooManyRequests:       metrics.Busy,
	statusClientGone:                 metrics.ClientGone,
	http.StatusInternalServerError:   metrics.Failed,
	http.StatusBadGateway:            metrics.Unreachable,
	http.StatusServiceUnavailable:    metrics.Draining,
	http.StatusGatewayTimeout:        metrics.UnknownOutcome,
	http.StatusInsufficientStorage:   metrics.OverQuota,
}

func outcomeOf(a answer) metrics.Outcome {
	switch {
	case a.err == nil:
		return metrics.OK
	case a.spdk:
		return metrics.SPDKError
	}
	if a.status == http.StatusServiceUnavailable && a.err.Code != jsonrpc.CodeDraining {
		return metrics.CannotTell
	}
	if o, ok := outcomes[a.status]; ok {
		return o
	}
	return metrics.Failed
}

func loginFailureOf(err error) metrics.LoginFailure {
	var slow *authn.TooManyFailuresError
	switch {
	case errors.Is(err, authn.ErrNoCredentials):
		return metrics.NoCredentials
	case errors.As(err, &slow):
		return metrics.TooManyFailures
	case errors.Is(err, authn.ErrBusy):
		return metrics.LoginBusy
	case errors.Is(err, authn.ErrCannotTell):
		return metrics.IssuerAway
	}
	return metrics.WrongCredentials
}

func denialOf(c *call) metrics.Denial {
	var foreign *tenancy.Refusal
	var exceeded *tenancy.QuotaError
	switch {
	case errors.As(c.answered.err, &exceeded):
		return metrics.ByQuota
	case errors.As(c.answered.err, &foreign):
		return metrics.ByTenant
	case errors.Is(c.answered.err, errCrossOrigin), errors.Is(c.answered.err, errCSRF):
		return metrics.ByOrigin
	case c.decided.rule == policy.NoRule, c.decided.rule == policy.NoRuleThere:
		return metrics.ByNoRule
	}
	return metrics.ByRole
}

// loadsWritten returns whether the target loads what hosts write; nil if the proxy does not know.
func loadsWritten(s target.State) *bool {
	if s.Examination == target.ExaminationUnknown {
		return nil
	}
	return new(s.Examination == target.ExaminesAll)
}

// probeWait bounds how long a scrape waits for the target.
const probeWait = 2 * time.Second

// state reads the values that metrics report as they are at the time of a scrape.
func (s *Server) state() metrics.State {
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	seen, err := s.target.Probe(ctx)
	connections, inFlight := s.inFlight.counts()
	loads := map[string]metrics.Load{}
	for user, l := range s.target.Loads() {
		loads[user] = metrics.Load(l)
	}
	return metrics.State{
		Connections: connections, Closed: s.clients.Closed(), InFlight: inFlight, Sessions: s.sessions.Count(), Certificates: s.expiries(), Revocations: s.settings.Load().crlsExpire,
		Tokens: s.settings.Load().tokensExpire, Learning: s.settings.Load().learning,
		Target: metrics.TargetState{
			Up: err == nil && seen.Phase != target.Unreachable, UntrustedPeer: seen.UntrustedPeer, LoadsWritten: loadsWritten(seen), LoadsAccepted: s.settings.Load().acceptLoading, Release: releaseOf(seen), Phase: string(seen.Phase), Reconnects: seen.Reconnects,
			Connections: s.target.Connections(), Loads: loads,
		},
		Saved: s.saved(),
	}
}

func (s *Server) saved() *metrics.SavedState {
	if s.restart.saver == nil {
		return nil
	}
	now := s.restart.saver.Status()
	return &metrics.SavedState{At: now.SavedAt, Pending: now.Pending, Failed: now.Failed, Missing: len(now.Missing), Chosen: !now.Chosen.IsZero()}
}

func releaseOf(s target.State) string {
	if !s.Release.Known() {
		return ""
	}
	return s.Release.String()
}

// expiries returns when the certificates expire that clients depend on.
func (s *Server) expiries() map[string]time.Time {
	all := map[string]time.Time{}
	if shown := s.cert.Current(); shown != nil && shown.Leaf != nil {
		all["server"] = shown.Leaf.NotAfter
	}
	if at := s.settings.Load().clientCAsExpire; !at.IsZero() {
		all["client_ca"] = at
	}
	return all
}
