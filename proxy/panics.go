package proxy

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// Panics are faults of the proxy. Each is logged as an error with its stack and
// counted, and ends nothing but the call or the request that it befell. net/http
// contains panics, too, but logs them where nobody looks.

// panicked logs and counts a panic. id is the request's; "" if there is none.
func (s *Server) panicked(id string, what any) {
	s.metrics.Panicked()
	s.log.Error("panic", slog.String("request_id", id), slog.Any("panic", what), slog.String("stack", string(debug.Stack())))
}

// recoverFrom makes a panic at one call that call's error.
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

// contained runs f, which serves no client.
func (s *Server) containPanic(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(what, p)
		}
	}()
	f()
}

// answerPanics answers a request with 500 if its handler panics. If a part of the answer
// was written, it closes the connection instead, so that the client does not take
// that part for the whole.
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
