package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Limits of one connection.
const (
	maxHeaderBytes = 16 << 10
	readyWait      = 2 * time.Second // for the target's answer to a probe
)

// Handler serves the proxy's paths. It accepts POST and HEAD at any other path, like
// rpc_http_proxy.py, because the URLs of that program's clients may have one.
func (s *Server) Handler() http.Handler {
	r := mux.NewRouter().SkipClean(true)
	r.MatcherFunc(belongsToConsole).Handler(s.consoleHandler())
	r.HandleFunc("/healthz", s.serveHealth).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz", s.serveReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz/strict", s.serveStrictlyReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/healthz", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz/strict", s.refuseMethod("GET, HEAD"))
	r.HandleFunc("/openrpc.json", s.serveOpenRPC).Methods(http.MethodGet)
	r.HandleFunc("/metrics", s.serveMetrics).Methods(http.MethodGet)
	r.HandleFunc("/events", s.serveEvents).Methods(http.MethodGet)
	r.HandleFunc("/metrics/target", s.serveTargetMetrics).Methods(http.MethodGet)
	r.PathPrefix("/").Methods(http.MethodPost).HandlerFunc(s.serveRPC)
	r.PathPrefix("/").Methods(http.MethodHead).HandlerFunc(s.serveHealth)
	r.Path("/").HandlerFunc(s.refuseMethod("POST, HEAD"))
	r.NotFoundHandler = http.HandlerFunc(s.refusePath)
	r.MethodNotAllowedHandler = http.HandlerFunc(s.refusePath)
	return s.answerPanics(s.callsFirst(r))
}

// callsFirst serves calls at / itself, and leaves other requests to the router, which would compare
// the path of each call with all others and copy the request twice.
func (s *Server) callsFirst(router http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/" {
			s.serveRPC(w, r)
			return
		}
		router.ServeHTTP(w, r)
	})
}

// serveHealth answers that this process is alive: it takes the locks that every call takes.
// It says nothing about the target.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	s.skipAnyBody(w, r)
	s.inFlight.isDraining()
	s.clients.Open()
	s.target.Connections()
	_, _ = io.WriteString(w, "ok\n")
}

// serveReady answers whether calls can be expected to work: the target answers, and does not
// wait for framework_start_init. Calls are accepted in any case. Because the request needs no
// authentication, the answer has no reason; the log has it.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) { s.answerReady(w, r, true) }

// serveStrictlyReady answers whether, in addition, the target has everything that is in its
// saved configuration: disks, exports of volumes, hosts. It is not ready while that is
// unknown, and never without target.save.
func (s *Server) serveStrictlyReady(w http.ResponseWriter, r *http.Request) {
	s.answerReady(w, r, s.restart.saver != nil && s.restart.saver.Complete())
}

func (s *Server) answerReady(w http.ResponseWriter, r *http.Request, complete bool) {
	s.skipAnyBody(w, r)
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
	s.skipAnyBody(w, r)
	writeError(w, http.StatusNotFound, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
		"no such path: POST JSON-RPC requests to /, or GET /healthz, /readyz, /openrpc.json, /metrics, /metrics/target or /events"))
}

func (s *Server) refuseMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.skipAnyBody(w, r)
		w.Header().Set("Allow", allow)
		writeError(w, http.StatusMethodNotAllowed, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"%s accepts only %s: send calls as JSON-RPC requests, by POST to /", r.URL.Path, allow))
	}
}

// httpServer makes the HTTP server around the handler. It has no ReadTimeout or
// WriteTimeout, because these would also end slow calls: readBody sets a deadline for each
// body, and package clientconn for each write.
func (s *Server) httpServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerWait,
		IdleTimeout:       time.Duration(s.config.Limits.Idle),
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ConnState:         s.connState,
		// No HTTP/2: a client could open and reset streams at no cost, each of which costs
		// the proxy a call; and HTTP/1.1 connections are cheaper for small calls.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     slog.NewLogLogger(debugHandler{s.log.Handler()}, slog.LevelDebug),
	}
}

// debugHandler logs net/http's messages about clients, such as failed handshakes, at the
// level debug and without the prefix of that package.
type debugHandler struct{ slog.Handler }

func (q debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.TrimPrefix(r.Message, "http: ")
	return q.Handler.Handle(ctx, r)
}
