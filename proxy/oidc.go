package proxy

import (
	"crypto/subtle"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/session"
)

// flowCookie has the ticket of a sign-in at the page of an issuer. The browser comes back from
// another site, so the cookie cannot be SameSite=Strict.
const flowCookie = "__Host-spdkgate-oidc"

// flowNotBegun is the refusal of a browser that comes back without a ticket, or with the state of
// another sign-in, which a page of another site could cause.
var flowNotBegun = &authn.RejectedError{Reason: "the sign-in was not begun in this browser, or took longer than 10 minutes: sign in again"}

// startOIDC sends a browser to the page of the issuer.
func (s *Server) startOIDC(w http.ResponseWriter, r *http.Request) {
	now := s.settings.Load()
	if !now.authn.TakesCodes() {
		s.refusePath(w, r)
		return
	}
	ticket, flow := s.flows.Begin()
	page, err := now.authn.IssuerPage(r.Context(), flow.State, flow.Nonce, flow.Verifier)
	if err != nil {
		x := newExchange(r, s.balancers)
		w.Header().Set("X-Request-Id", x.id)
		x.sender = sender{unauthenticated: true, auth: string(authn.ByCode)}
		answered := s.noteConsole(x, signInMethod, nil, err)
		writePage(w, answered.status, oidcMessage(err, answered))
		return
	}
	setFlowCookie(w, ticket)
	http.Redirect(w, r, page, http.StatusFound)
}

// endOIDC begins the session of a browser that comes back from the page of the issuer. It answers
// with a page that loads the console, because the browser does not send the session's cookie on the
// way from another site.
func (s *Server) endOIDC(w http.ResponseWriter, r *http.Request) {
	now := s.settings.Load()
	if !now.authn.TakesCodes() {
		s.refusePath(w, r)
		return
	}
	x := newExchange(r, s.balancers)
	w.Header().Set("X-Request-Id", x.id)
	setFlowCookie(w, "")
	id, began, err := s.signInByCode(now, x, r)
	if x.entered {
		defer s.inFlight.leave()
	}
	if err != nil {
		answered := s.noteConsole(x, signInMethod, nil, err)
		writePage(w, answered.status, oidcMessage(err, answered))
		return
	}
	s.noteConsole(x, signInMethod, map[string]any{"session": began.Name}, nil)
	setSessionCookie(w, id)
	writePage(w, http.StatusOK, "")
}

func (s *Server) signInByCode(now *settings, x *exchange, r *http.Request) (id string, began session.Session[signedIn], err error) {
	defer s.recoverFrom(x, &err)
	x.sender = sender{unauthenticated: true, auth: string(authn.ByCode)}
	if err := s.inFlight.enter(connOf(r)); err != nil {
		return "", began, err
	}
	x.entered = true
	if x.noSource != nil {
		return "", began, x.noSource
	}
	in, err := s.receiveCode(now, r)
	if err != nil {
		return "", began, err
	}
	who, binding, err := now.authn.SignIn(r.Context(), in, credentialsFrom(r, x.source))
	x.noteSender(now.authn, who, err)
	if err != nil {
		return "", began, err
	}
	if !s.clients.Authenticated(connOf(r)) {
		return "", began, errGone
	}
	id, began = s.beginSession(now, r, binding, string(authn.ByCode))
	return id, began, nil
}

// receiveCode reads what a browser brought from the issuer. Its state must be that of the ticket
// that the same browser has.
func (s *Server) receiveCode(now *settings, r *http.Request) (in authn.SignIn, err error) {
	tickets, query := r.CookiesNamed(flowCookie), r.URL.Query()
	if len(tickets) != 1 {
		return in, flowNotBegun
	}
	flow, ok := s.flows.Resume(tickets[0].Value)
	if !ok || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(flow.State)) != 1 {
		return in, flowNotBegun
	}
	if issuer := query.Get("iss"); issuer != "" && !now.authn.IsIssuer(issuer) {
		return in, flowNotBegun
	}
	if query.Has("error") || query.Get("code") == "" {
		return in, authn.IssuerRefused(query.Get("error"))
	}
	return authn.SignIn{Method: authn.ByCode, Code: query.Get("code"), Nonce: flow.Nonce, Verifier: flow.Verifier}, nil
}

// oidcMessage says why a sign-in failed.
func oidcMessage(err error, a answer) string {
	switch {
	case errors.Is(err, authn.ErrCannotTell):
		return "the issuer cannot be reached, or its signing keys are unavailable: try again later. The log of the proxy has the reason."
	case errors.Is(err, authn.ErrWrongCredentials):
		return strings.TrimPrefix(a.err.Message, "authentication failed: ")
	}
	return a.err.Message
}

// setFlowCookie gives the browser a ticket, or takes it away if it is "".
func setFlowCookie(w http.ResponseWriter, ticket string) {
	c := http.Cookie{
		Name: flowCookie, Value: ticket, Path: "/", MaxAge: int(session.FlowTime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
	if ticket == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}

// page leads to the console: at once, or from a message.
var page = template.Must(template.New("").Parse(`<!doctype html>
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

// writePage answers a browser that came from another site. message is why it is not signed in.
func writePage(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, map[string]string{"Message": message, "Console": console.Path}) // the client may have disconnected
}
