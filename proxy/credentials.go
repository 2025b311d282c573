package proxy

import (
	"crypto/subtle"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/session"
)

// crossOrigin detects requests that a web page of another site made a browser send. The
// browser adds a password or certificate that it has stored, and since the proxy requires
// no Content-Type, it does not ask for permission first. Other clients send none of the
// headers that are checked.
var crossOrigin = http.NewCrossOriginProtection()

// credentialsFrom collects everything in a request that identifies its sender.
func credentialsFrom(r *http.Request, source auditlog.Source) authn.Evidence {
	e := authn.Evidence{Authorization: r.Header["Authorization"], Source: source.Address.Addr()}
	if r.TLS != nil {
		e.Certificates = r.TLS.PeerCertificates
	}
	return e
}

// noteSender notes who sent a request, and the authentication schemes that a refusal lists.
func (x *exchange) noteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.sender = sender{user: who.User, unauthenticated: err != nil, auth: string(who.Method), credential: who.Credential}
	// Basic comes first: clients of rpc_http_proxy.py look for it, and some look only at
	// the first header.
	x.sender.challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.sender.challenges = append(x.sender.challenges, `Bearer realm="spdk-proxy"`)
	}
}

// A signedIn is what a session of the console remembers of the sign-in.
type signedIn struct {
	binding authn.Binding
	way     string // how the user signed in, for the console
}

// Names of a session in requests and in the log.
const (
	// sessionCookie has the id of a session. A browser accepts the prefix only over TLS, from this
	// host itself, and for all of its paths.
	sessionCookie = "__Host-spdkgate"
	csrfHeader    = "X-Csrf-Token"
	// backgroundHeader marks a request that the console sends by itself. It does not count as a use
	// of the session.
	backgroundHeader = "X-Background"

	authSession = "session" // auth in the log

	eventStreamType = "text/event-stream"
)

// sessionOf returns the id of the session that a request belongs to, if the console is enabled and
// there is no Authorization header, which decides alone. With several cookies of that name, the
// id is "", which no session has.
func sessionOf(now *settings, r *http.Request) (id string, ok bool) {
	if !now.console.Enabled || len(r.Header["Cookie"]) == 0 || len(r.Header["Authorization"]) > 0 {
		return "", false
	}
	switch cookies := r.CookiesNamed(sessionCookie); len(cookies) {
	case 0:
		return "", false
	case 1:
		return cookies[0].Value, true
	}
	return "", true
}

// noteSession notes the session that a request belongs to. A browser that gets no challenge does
// not ask for a name and password by itself.
func (x *exchange) noteSession(found session.Session[signedIn], err error) {
	x.sender = sender{user: found.User, unauthenticated: err != nil, auth: authSession, credential: found.Name}
	if began := found.Value.binding.Identity().Credential; began != "" { // such as the person, if the user is a group
		x.sender.credential += ", " + began
	}
	if err == nil {
		x.sender.session = &found
	}
}

// sentByPage reports whether a script of a page that this proxy served sent a request.
func sentByPage(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "same-origin" && r.Header.Get("Sec-Fetch-Dest") == "empty"
}

// sentInBackground reports whether a page sent a request without its user: by itself, or to connect
// to an event stream again, for which a page can set no header.
func sentInBackground(r *http.Request) bool {
	return r.Header.Get(backgroundHeader) != "" || r.Header.Get("Accept") == eventStreamType
}

// checkOrigin refuses a request that a page of another site, or a page that does not have the
// session's token, made a browser send with its credentials.
func checkOrigin(x *exchange, r *http.Request) error {
	if crossOrigin.Check(r) != nil {
		return errCrossOrigin
	}
	if x.sender.session == nil {
		return nil
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default: // also for methods that change nothing, which crossOrigin lets through
		return errCrossOrigin
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(x.sender.session.CSRF)) != 1 {
		return errCSRF
	}
	return nil
}
