package proxy

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// A panic is a fault of the proxy. It is counted, logged as an error with its stack, and ends
// only its own call or request. net/http recovers from panics too, but its messages are at
// the level debug here.

// panicked logs and counts a panic. id is the request's, or says what ran without a request.
func (s *Server) panicked(id string, what any) {
	s.metrics.Panicked()
	s.log.Error("panic", slog.String("request_id", id), slog.Any("panic", what), slog.String("stack", string(debug.Stack())))
}

// recoverFrom turns a panic during one call into that call's error. Defer it.
func (s *Server) recoverFrom(x *exchange, err *error) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.panicked(x.id, p)
	*err = errPanic
}

// containPanic runs f, which serves no client, and logs a panic in it.
func (s *Server) containPanic(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(what, p)
		}
	}()
	f()
}

// answerPanics answers a request with 500 if its handler panics. If a part of the answer
// has been written, it closes the connection instead, so that the client does not take
// the part for the whole.
func (s *Server) answerPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answerWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.panicked(w.Header().Get("X-Request-Id"), p)
			if answer.begun {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Connection", "close")
			failed := answerTo(errPanic)
			send(w, failed.status, [][]byte{errorText(nil, failed.err)})
		}()
		next.ServeHTTP(answer, r)
	})
}
