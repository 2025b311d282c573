package proxy

import (
	"net/http"
	"time"
)

// What net/http reads, for the sake of the next request, of a body that no handler
// wanted.

// boundLeftover bounds, after the answer to a user, how long the server reads on for
// the rest of the body.
func (s *Server) boundLeftover(w http.ResponseWriter, x *exchange, bound time.Duration) {
	if x.sender.unauthenticated || x.bodyRead {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bound))
}

// strangerWait bounds how long the rest of an unauthenticated request is read, so
// that a client that sends one finds its answer before the connection is closed.
const strangerWait = time.Second

// endUnread has an unauthenticated request answered without waiting for its body:
// net/http would, were the connection kept.
func (s *Server) endUnread(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.strangerWait))
}

// endUnreadBody is endUnread for paths that everybody may ask, which take no body.
func (s *Server) endUnreadBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		s.endUnread(w)
	}
}
