package console

import (
	"crypto/subtle"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// flowCookie is the name of the cookie with the ticket for a sign-in at an issuer's page. It cannot
// be SameSite=Strict, because the browser comes back from another site.
const flowCookie = "__Host-spdkgate-oidc"

// flowNotBegun is the error for a browser that returns without a ticket, or with the state of
// another sign-in. Another site's page could cause either.
var flowNotBegun = &authn.RejectedError{Reason: "the sign-in was not begun in this browser, or took longer than 10 minutes: sign in again"}

// startOIDC sends a browser to the issuer's page.
func (s *Server) startOIDC(w http.ResponseWriter, r *http.Request) {
	current := s.Gate.Settings()
	if !current.Authn.TakesCodes() {
		s.Web.RefusePath(w, r)
		return
	}
	ticket, flow := s.flows.Begin()
	issuer, err := current.Authn.IssuerPage(r.Context(), flow.State, flow.Nonce, flow.Verifier)
	if err != nil {
		s.oidcPage(func(v *web.Visit) error {
			v.X.Sender = gate.Sender{Unauthenticated: true, Auth: string(authn.ByCode)}
			return err
		})(w, r)
		return
	}
	setFlowCookie(w, ticket)
	http.Redirect(w, r, issuer, http.StatusFound)
}

// endOIDC begins the session of a browser that returns from the issuer's page. It returns a page
// that loads the console, because the browser does not send the session cookie with a request that
// comes from another site.
func (s *Server) endOIDC(w http.ResponseWriter, r *http.Request) {
	if !s.Gate.Settings().Authn.TakesCodes() {
		s.Web.RefusePath(w, r)
		return
	}
	setFlowCookie(w, "")
	s.oidcPage(s.identifyCode)(w, r)
}

// oidcPage returns the handler for browsers that return from an issuer.
func (s *Server) oidcPage(identify func(v *web.Visit) error) http.HandlerFunc {
	return s.Web.Page(web.Page{
		Method: SignInMethod, Identify: identify, FromOtherSites: true,
		Write: func(v *web.Visit, _ any) { writePage(v.W, http.StatusOK, "") },
		Fail:  func(v *web.Visit, c *gate.Call) { writePage(v.W, c.Answer().Status, oidcMessage(c.Err(), c.Answer())) },
	})
}

// identifyCode authenticates a request by the code that the issuer sent through the browser.
func (s *Server) identifyCode(v *web.Visit) (err error) {
	v.X.Sender = gate.Sender{Unauthenticated: true, Auth: string(authn.ByCode)}
	in := &signIn{way: string(authn.ByCode)}
	v.Data = in
	if in.with, err = s.receiveCode(v.Settings(), v.R); err != nil {
		return err
	}
	return s.authenticate(v, in)
}

// receiveCode reads the parameters that the issuer sent through the browser. The state must match
// the ticket in the browser's cookie.
func (s *Server) receiveCode(current *gate.Settings, r *http.Request) (in authn.SignIn, err error) {
	tickets, query := r.CookiesNamed(flowCookie), r.URL.Query()
	if len(tickets) != 1 {
		return in, flowNotBegun
	}
	flow, ok := s.flows.Resume(tickets[0].Value)
	if !ok || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(flow.State)) != 1 {
		return in, flowNotBegun
	}
	if issuer := query.Get("iss"); issuer != "" && !current.Authn.IsIssuer(issuer) {
		return in, flowNotBegun
	}
	if query.Has("error") || query.Get("code") == "" {
		return in, authn.IssuerRefused(query.Get("error"))
	}
	return authn.SignIn{Method: authn.ByCode, Code: query.Get("code"), Nonce: flow.Nonce, Verifier: flow.Verifier}, nil
}

// oidcMessage returns a message that explains why a sign-in failed.
func oidcMessage(err error, a gate.Answer) string {
	switch {
	case errors.Is(err, authn.ErrCannotTell):
		return "the issuer cannot be reached, or its signing keys are unavailable: try again later. The proxy's log contains the reason."
	case errors.Is(err, authn.ErrWrongCredentials):
		return strings.TrimPrefix(a.Err.Message, "authentication failed: ")
	}
	return a.Err.Message
}

// setFlowCookie sets the browser's ticket, or removes it if ticket is "".
func setFlowCookie(w http.ResponseWriter, ticket string) {
	c := http.Cookie{
		Name: flowCookie, Value: ticket, Path: "/", MaxAge: int(session.FlowTime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	if ticket == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}

// wayBack is a page that immediately loads the console, or shows a message and a link to the
// console.
var wayBack = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{{if not .Message}}<meta http-equiv="refresh" content="0;url={{.Console}}">
{{end}}<title>SPDKGate</title>
</head>
<body>
{{if .Message}}<h1>Not signed in</h1>
<p>{{.Message}}</p>
{{end}}<p><a href="{{.Console}}">Go to the console</a></p>
</body>
</html>
`))

// writePage responds to a browser that came from another site. message explains why the user is not
// signed in.
func writePage(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = wayBack.Execute(w, map[string]string{"Message": message, "Console": Path}) // the client may have disconnected
}
