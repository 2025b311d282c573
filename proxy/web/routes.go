package web

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Handler serves the proxy's paths. Like rpc_http_proxy.py, it accepts POST and HEAD on any other
// path, because clients of that program may use URLs with a path.
func (s *Server) Handler() http.Handler {
	r := mux.NewRouter().SkipClean(true)
	if s.Console != nil {
		r.MatcherFunc(belongsToConsole).Handler(s.Console)
	}
	r.HandleFunc("/healthz", s.serveHealth).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz", s.serveReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/readyz/strict", s.serveStrictlyReady).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/healthz", s.RefuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz", s.RefuseMethod("GET, HEAD"))
	r.HandleFunc("/readyz/strict", s.RefuseMethod("GET, HEAD"))
	r.HandleFunc("/openrpc.json", s.Page(Page{Method: "rpc.discover", Write: writeDocument})).Methods(http.MethodGet)
	r.HandleFunc("/metrics", s.Page(Page{Method: "spdkgate_get_metrics", Write: writeMetrics})).Methods(http.MethodGet)
	r.HandleFunc("/metrics/target", s.Page(Page{Method: "spdkgate_get_target_metrics", Write: writeTargetMetrics})).Methods(http.MethodGet)
	r.HandleFunc("/events", s.events()).Methods(http.MethodGet)
	if s.Messages != nil {
		r.Handle(StreamPath, s.Messages).Methods(http.MethodGet)
	}
	r.PathPrefix("/").Methods(http.MethodPost).HandlerFunc(s.serveRPC)
	r.PathPrefix("/").Methods(http.MethodHead).HandlerFunc(s.serveHealth)
	r.Path("/").HandlerFunc(s.RefuseMethod("POST, HEAD"))
	r.NotFoundHandler = http.HandlerFunc(s.RefusePath)
	r.MethodNotAllowedHandler = http.HandlerFunc(s.RefusePath)
	return s.AnswerPanics(s.callsFirst(r))
}

// StreamPath is the path at which clients open streams of messages.
const StreamPath = "/stream"

// ConsolePath is the prefix of the console's paths.
const ConsolePath = "/console/"

// belongsToConsole reports whether a request's path is one of the console's.
func belongsToConsole(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.HasPrefix(r.URL.Path, ConsolePath) || r.URL.Path == strings.TrimSuffix(ConsolePath, "/")
}

// callsFirst serves calls to / directly, and passes other requests to the router. For each call,
// the router would compare all paths and copy the request twice.
func (s *Server) callsFirst(router http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/" {
			s.serveRPC(w, r)
			return
		}
		router.ServeHTTP(w, r)
	})
}

// RefusePath responds to a request for a nonexistent path.
func (s *Server) RefusePath(w http.ResponseWriter, r *http.Request) {
	s.SkipAnyBody(w, r)
	writeError(w, http.StatusNotFound, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
		"no such path: POST JSON-RPC requests to /, or GET /healthz, /readyz, /openrpc.json, /metrics, /metrics/target or /events"))
}

// RefuseMethod returns the handler for requests with an HTTP method that the path does not accept.
func (s *Server) RefuseMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.SkipAnyBody(w, r)
		w.Header().Set("Allow", allow)
		writeError(w, http.StatusMethodNotAllowed, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"%s accepts only %s: send calls as JSON-RPC requests, by POST to /", r.URL.Path, allow))
	}
}
