package console

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// Audit serves AuditMethod, which only administrators may call.
func (s *Server) Audit(_ context.Context, r *gate.Request) (any, error) { return s.Web.OpenStream(r) }

// auditPage streams the audit log: the most recent entries, followed by each new entry. Secrets are
// redacted as in the log. A client that reconnects receives the entries that it has missed.
func (s *Server) auditPage() http.HandlerFunc {
	return s.Web.Stream(web.Page{Method: AuditMethod, Fail: fail}, (*gate.Settings).Administrator, func(e *web.Stream) {
		next, seen := uint64(0), false
		if last, ok := web.LastEventID(e.Visit().R, s.Process); ok {
			next, seen = last+1, true
		}
		for {
			lines, missed, after, grown := s.AuditLog.Feed.From(next)
			if seen && missed > 0 && !e.Send("missed", "", fmt.Appendf(nil, `{"count":%d}`, missed)) {
				return
			}
			for _, l := range lines {
				if !e.Send("call", fmt.Sprintf("%s-%d", s.Process, l.Number), l.JSON()) {
					return
				}
			}
			next, seen = after, true
			if len(lines) > 0 {
				e.Pause()
			}
			if !e.Wait(grown) {
				return
			}
		}
	})
}
