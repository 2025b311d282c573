package web

import (
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// AnswerPanics responds with status 500 if a request's handler panics. If part of the response has
// been written, it closes the connection instead, so that the client does not mistake that part for
// the complete response.
func (s *Server) AnswerPanics(next http.Handler) http.Handler {
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
			s.Gate.Panicked(w.Header().Get("X-Request-Id"), p)
			if answer.begun {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Connection", "close")
			failed := gate.AnswerTo(gate.ErrPanic)
			writeError(w, failed.Status, nil, failed.Err)
		}()
		next.ServeHTTP(answer, r)
	})
}
