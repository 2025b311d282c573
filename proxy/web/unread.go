package web

import (
	"net/http"
	"time"
)

// To reach the next request on a connection, net/http reads the part of a body that the handler has
// not read. The functions in this file limit how long this may take.

// limitUnreadBody limits how long the server reads the rest of a body after responding to an
// authenticated user.
func (s *Server) limitUnreadBody(v *Visit) {
	if v.X.Sender.Unauthenticated || v.bodyRead {
		return
	}
	_ = http.NewResponseController(v.W).SetReadDeadline(time.Now().Add(v.current.Read))
}

// unreadBodyWait limits how long the server reads the rest of an unauthenticated request, so that
// the client can read the response before the connection is closed.
const unreadBodyWait = time.Second

// skipBody makes net/http close the connection after an unauthenticated request. Otherwise,
// net/http would read the whole body before sending the response.
func (s *Server) skipBody(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.UnreadBodyWait))
}

// SkipAnyBody calls skipBody if the request has a body. It is for paths that do not read a body.
func (s *Server) SkipAnyBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		s.skipBody(w)
	}
}
