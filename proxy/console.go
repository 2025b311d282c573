package proxy

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/spdkgate/spdkgate/proxy/console"
)

// belongsToConsole reports whether a request is for the console's paths.
func belongsToConsole(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.HasPrefix(r.URL.Path, console.Path) || r.URL.Path == strings.TrimSuffix(console.Path, "/")
}

// consoleHandler serves the console's files and its own requests. If the configuration disables
// the console, these paths do not exist.
func (s *Server) consoleHandler() http.Handler {
	files, err := console.Handler(console.Files())
	if err != nil {
		panic(err) // the files are compiled in, and tested
	}
	paths := http.NewServeMux()
	paths.HandleFunc("GET /console", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, console.Path, http.StatusMovedPermanently)
	})
	paths.Handle("GET /console/", files)
	paths.HandleFunc("/console/", s.refuseMethod("GET, HEAD"))
	paths.HandleFunc("GET /console/session", s.serveSession)
	paths.HandleFunc("POST /console/session", s.serveSignIn)
	paths.HandleFunc("DELETE /console/session", s.serveSignOut)
	paths.HandleFunc("GET /console/oidc/start", s.startOIDC)
	paths.HandleFunc("GET /console/oidc/callback", s.endOIDC)
	paths.HandleFunc("GET /console/access", s.serveAccess)
	paths.HandleFunc("POST /console/explain", s.serveExplain)
	paths.HandleFunc("GET /console/audit", s.serveAudit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.settings.Load().console.Enabled {
			s.refusePath(w, r)
			return
		}
		console.SetHeaders(w.Header())
		w.Header().Set("Cache-Control", "no-store") // of answers; files have their own
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			s.skipAnyBody(w, r)
		}
		paths.ServeHTTP(w, r)
	})
}
