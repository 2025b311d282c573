package proxy

import (
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
)

// audit counts a call that has ended, and writes its entry in the audit log. A call has no
// password, hash or Authorization header.
func (s *Server) audit(c *call) {
	took := time.Since(c.started)
	s.observe(c, took)
	switch s.auditLog.Write(c.entry(took)) {
	case auditlog.Written:
		s.metrics.AuditLine()
	case auditlog.Merged:
		s.metrics.AuditMerged()
	}
}

// entry makes the audit log's entry of a call.
func (c *call) entry(took time.Duration) *auditlog.Entry {
	x, asked, decided, answered := c.in, c.asked, c.decided, c.answered
	e := &auditlog.Entry{
		RequestID: x.id, ClientRequestID: x.client.requestID, TraceID: x.client.traceID, User: x.sender.user, Auth: x.sender.auth, Credential: x.sender.credential, Source: x.source,
		Method: asked.method, Params: asked.redacted, Translations: decided.translations,
		Tenant: decided.tenant, Hidden: decided.hidden, Raised: decided.raised,
		Decision: decided.decision, Rule: decided.rule, Status: answered.answer.status, Took: took,
	}
	if x.batch {
		e.Batch = fmt.Sprintf("%d/%d", 1+slices.Index(x.calls, c), len(x.calls))
	}
	if answered.answer.err != nil {
		e.Code, e.Err, e.NotExecuted = answered.answer.err.Code, answered.err, !answered.answer.spdk
	}
	return e
}
