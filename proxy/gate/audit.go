package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
)

// audit counts a call that has ended, and writes its entry to the audit log. The entry contains no
// password, hash or Authorization header, because a Call contains none.
func (g *Gate) audit(c *Call) {
	took := time.Since(c.started)
	g.observe(c, took)
	switch g.AuditLog.Write(c.entry(took)) {
	case auditlog.Written:
		g.Metrics.AuditLine()
	case auditlog.Merged:
		g.Metrics.AuditMerged()
	}
}

func (c *Call) entry(took time.Duration) *auditlog.Entry {
	x, asked, decided, answered := c.In, c.asked, c.decided, c.answered
	e := &auditlog.Entry{
		RequestID: x.ID, ClientRequestID: x.Client.RequestID, TraceID: x.Client.TraceID, User: x.Sender.User, Auth: x.Sender.Auth, Credential: x.Sender.Credential, Source: x.Source,
		Method: asked.method, Params: asked.redacted, Translations: decided.translations,
		Tenant: decided.tenant, Hidden: decided.hidden, Raised: decided.raised,
		Decision: decided.decision, Rule: decided.rule, Status: answered.answer.Status, Took: took,
	}
	if x.Batch {
		e.Batch = fmt.Sprintf("%d/%d", 1+slices.Index(x.Calls, c), len(x.Calls))
	}
	if answered.answer.Err != nil {
		e.Code, e.Err, e.NotExecuted = answered.answer.Err.Code, answered.err, !answered.answer.spdk()
	}
	return e
}

// observe counts a call that has ended.
func (g *Gate) observe(c *Call, took time.Duration) {
	user, method, answer := c.In.Sender.User, c.asked.method, c.answered.answer
	g.Metrics.Call(user, method, answer.Outcome, took)
	for _, t := range c.decided.translations {
		g.Metrics.Translated(user, method, t.From, t.To)
	}
	switch {
	case c.decided.decision == auditlog.Learned:
		g.Metrics.Learned()
	case c.decided.decision == auditlog.Unauthenticated:
		g.Metrics.LoginFailed(answer.login)
	case answer.Outcome == metrics.Denied, answer.Outcome == metrics.OverQuota:
		g.Metrics.Denied(denialOf(c))
	}
}

func denialOf(c *Call) metrics.Denial {
	denial := c.answered.answer.denial
	if denial == metrics.ByRole && (c.decided.rule == policy.NoRule || c.decided.rule == policy.NoRuleThere) {
		return metrics.ByNoRule
	}
	return denial
}
