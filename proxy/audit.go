package proxy

import (
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
)

// audit counts a call that ended, and writes its entry in the audit log. Passwords,
// hashes and Authorization never get here.
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

// entry is what the audit log says of a call.
func (c *call) entry(took time.Duration) *auditlog.Entry {
	e := &auditlog.Entry{
		RequestID: c.id, User: c.user, Auth: c.auth, Credential: c.credential, Source: c.source,
		Method: c.method, Params: c.params, Translations: c.translations,
		Tenant: c.tenant, Hidden: c.hidden, Raised: c.raised,
		Decision: c.decision, Rule: c.rule, Status: c.answer.status, Took: took,
	}
	if c.batch {
		e.Batch = fmt.Sprintf("%d/%d", 1+slices.Index(c.calls, c), len(c.calls))
	}
	if c.answer.err != nil {
		e.Code, e.Err, e.NotExecuted = c.answer.err.Code, c.err, !c.answer.spdk
	}
	return e
}
