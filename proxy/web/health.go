package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/target"
)

// readyWait limits how long the proxy waits for the target's response to a probe.
const readyWait = 2 * time.Second

// serveHealth reports that this process is alive, after acquiring the locks that every call
// acquires. It does not check the target.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	s.SkipAnyBody(w, r)
	s.Gate.Draining()
	s.Gate.Clients.Open()
	s.Gate.Target.Connections()
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady reports whether calls are likely to work, which requires that the target responds and
// is not waiting for framework_start_init. The proxy accepts calls in any case. The response omits
// the reason, because the request needs no authentication; the log contains it.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) { s.answerReady(w, r, true) }

// serveStrictlyReady is like serveReady, but additionally requires that the target contain
// everything in its saved configuration: disks, exports, hosts. It reports "not ready" if the
// target's contents are unknown, or if target.save is not set.
func (s *Server) serveStrictlyReady(w http.ResponseWriter, r *http.Request) {
	s.answerReady(w, r, s.Complete())
}

func (s *Server) answerReady(w http.ResponseWriter, r *http.Request, complete bool) {
	s.SkipAnyBody(w, r)
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	if s.Gate.Draining() {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	state, err := s.Gate.Target.Probe(ctx)
	if err != nil || state.Phase != target.Runtime || !complete {
		s.Gate.Log.Debug("not ready", "target", state.Phase, "complete", complete, "error", errors.Join(err, state.Err))
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}
