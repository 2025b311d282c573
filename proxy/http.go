package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Bounds on what a client may do to a connection.
const (
	maxHeaderBytes = 16 << 10
	headerWait     = 10 * time.Second // for a request's header, and for the TLS handshake
	readyWait      = 2 * time.Second
)

// Handler serves the proxy's paths. Calls are taken at any path, as
// rpc_http_proxy.py takes them, whose clients may have one in their URL; HEAD
// is answered likewise.
func (s *Server) Handler() http.Handler {
	r := mux.NewRouter().SkipClean(true)
	r.HandleFunc("/healthz", s.serveHealth).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz", s.serveReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz/strict", s.serveStrictlyReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/healthz", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz/strict", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/openrpc.json", s.serveOpenRPC).Methods(http.MethodGet)
	r.HandleFunc("/metrics", s.serveMetrics).Methods(http.MethodGet)
	r.PathPrefix("/").Methods(http.MethodPost).HandlerFunc(s.serveRPC)
	r.PathPrefix("/").Methods(http.MethodHead).HandlerFunc(s.serveHealth)
	r.Path("/").HandlerFunc(s.refuseMethod("POST, HEAD"))
	r.NotFoundHandler = http.HandlerFunc(s.refusePath)
	r.MethodNotAllowedHandler = http.HandlerFunc(s.refusePath)
	return s.answerPanics(r)
}

// serveHealth tells that this process is alive, and no more: that what every
// call takes can be taken. The target may be away.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	s.endUnreadBody(w, r)
	s.inFlight.isDraining()
	s.clients.Open()
	s.target.Connections()
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady tells whether calls can be expected to work: the target answers, and
// does not wait for framework_start_init. Calls are taken whatever it says, also
// that one. Anybody may ask, so it gives no reason; the log has it.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) { s.answerReady(w, r, true) }

// serveStrictlyReady tells, besides, whether the target has everything that is saved
// of its configuration: all disks, volumes' exports, hosts. It is not ready while
// that is not known, and never without target.save.
func (s *Server) serveStrictlyReady(w http.ResponseWriter, r *http.Request) {
	s.answerReady(w, r, s.restart.saver != nil && s.restart.saver.Complete())
}

func (s *Server) answerReady(w http.ResponseWriter, r *http.Request, complete bool) {
	s.endUnreadBody(w, r)
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	if s.inFlight.isDraining() {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	state, err := s.target.Probe(ctx)
	if err != nil || state.Phase != target.Runtime || !complete {
		s.log.Debug("not ready", "target", state.Phase, "complete", complete, "error", errors.Join(err, state.Err))
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

func (s *Server) refusePath(w http.ResponseWriter, r *http.Request) {
	s.endUnreadBody(w, r)
	writeError(w, http.StatusNotFound, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
		"there is nothing here: POST JSON-RPC requests to /, or GET /healthz, /readyz, /openrpc.json or /metrics"))
}

func (s *Server) refuseMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.endUnreadBody(w, r)
		w.Header().Set("Allow", allow)
		writeError(w, http.StatusMethodNotAllowed, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"%s takes only %s: calls are JSON-RPC requests that are POSTed to /", r.URL.Path, allow))
	}
}

// httpServer is the HTTP server around the handler. It has no ReadTimeout or
// WriteTimeout, which would end slow calls as well: bodies have a deadline of
// their own (readBody), and so has every write (package clientconn).
func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerWait,
		IdleTimeout:       time.Duration(s.config.Limits.Idle),
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ConnState:         s.connState,
		// No HTTP/2: one client's streams, opened and reset in a row, would cost it
		// nothing and us a call each; and calls are small, so that kept HTTP/1.1
		// connections are cheaper than streams.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     slog.NewLogLogger(debugHandler{s.log.Handler()}, slog.LevelDebug),
	}
}

// connState is told what becomes of the server's connections.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	s.inFlight.connState(conn, state)
	s.clients.ConnState(conn, state)
}

// debugHandler keeps what net/http has to say about clients, such as failed
// handshakes, at the level of debug and in our words.
type debugHandler struct{ slog.Handler }

func (q debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.TrimPrefix(r.Message, "http: ")
	return q.Handler.Handle(ctx, r)
}
