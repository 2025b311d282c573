package console

import (
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// These are the names of the console's own requests in the log and the metrics. These requests are
// not methods: clients cannot call them over JSON-RPC, and roles cannot name them.
const (
	SignInMethod  = "console.sign_in"
	SignOutMethod = "console.sign_out"
	SessionMethod = "console.session"
	AccessMethod  = "console.access"
	ExplainMethod = "console.explain"
	AuditMethod   = "console.audit"
)

// A Server serves the console's own requests. Its methods may be called concurrently.
type Server struct {
	Options
	files http.Handler
	flows *session.Flows
}

// Options configures a Server.
type Options struct {
	Web      *web.Server
	Gate     *gate.Gate
	Sessions *session.Store[web.SignedIn]
	AuditLog *auditlog.Log
	Version  string // version of the program
	Process  string // identifies this process in event ids
}

// New returns a Server.
func New(o Options) *Server {
	files, err := Handler(Files())
	if err != nil {
		panic(err) // impossible: the files are compiled in and tested
	}
	return &Server{Options: o, files: files, flows: session.NewFlows(nil)}
}

// Handler returns a handler for the console's files and its own requests. If the configuration
// disables the console, the handler returns 404.
func (s *Server) Handler() http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /console", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, Path, http.StatusMovedPermanently)
	})
	paths.Handle("GET /console/", s.files)
	paths.HandleFunc("/console/", s.Web.RefuseMethod("GET, HEAD"))
	paths.HandleFunc("GET /console/session", s.serveSession)
	paths.HandleFunc("POST /console/session", s.Web.Page(web.Page{Method: SignInMethod, Identify: s.identifySignIn, Write: writeJSON, Fail: failSignIn}))
	paths.HandleFunc("DELETE /console/session", s.Web.Page(web.Page{Method: SignOutMethod, Write: writeJSON, Fail: fail}))
	paths.HandleFunc("GET /console/oidc/start", s.startOIDC)
	paths.HandleFunc("GET /console/oidc/callback", s.endOIDC)
	paths.HandleFunc("GET /console/access", s.Web.Page(web.Page{Method: AccessMethod, Write: writeJSON, Fail: fail}))
	paths.HandleFunc("POST /console/explain", s.Web.Page(web.Page{Method: ExplainMethod, Write: writeJSON, Fail: fail}))
	paths.HandleFunc("GET /console/audit", s.auditPage())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.Gate.Settings().Console.Enabled {
			s.Web.RefusePath(w, r)
			return
		}
		SetHeaders(w.Header())
		w.Header().Set("Cache-Control", "no-store") // applies to responses; files set their own headers
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			s.Web.SkipAnyBody(w, r)
		}
		paths.ServeHTTP(w, r)
	})
}

func writeJSON(v *web.Visit, value any) { web.WriteJSON(v.W, http.StatusOK, value) }

func fail(v *web.Visit, c *gate.Call) { web.WriteMessage(v.W, c.Answer(), c.Answer().Err.Message) }

// visitOf returns the HTTP request that contains a console call.
func visitOf(r *gate.Request) *web.Visit { return r.Call.In.Endpoint.(*web.Visit) }
