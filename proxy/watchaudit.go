package proxy

import (
	"fmt"
	"net/http"
)

// auditMethod is the name of GET /console/audit in the log.
const auditMethod = "console.audit"

// serveAudit sends the last entries of the audit log, and then each new one, to an administrator.
// Their secrets are redacted, as in the log. A client that connects again gets what it has missed.
func (s *Server) serveAudit(w http.ResponseWriter, r *http.Request) {
	s.serveStream(w, r, auditMethod, (*settings).administrator, func(e *eventStream) {
		next, seen := uint64(0), false
		if last, ok := lastEventID(r, s.process); ok {
			next, seen = last+1, true
		}
		for {
			lines, missed, after, grown := s.auditLog.Feed.From(next)
			if seen && missed > 0 && !e.send("missed", "", fmt.Appendf(nil, `{"count":%d}`, missed)) {
				return
			}
			for _, l := range lines {
				if !e.send("call", fmt.Sprintf("%s-%d", s.process, l.Number), l.JSON()) {
					return
				}
			}
			next, seen = after, true
			if len(lines) > 0 {
				e.pause()
			}
			if !e.wait(grown) {
				return
			}
		}
	})
}
