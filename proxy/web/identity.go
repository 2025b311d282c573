package web

import (
	"crypto/subtle"
	"errors"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
)

// crossOrigin detects requests that another site's page caused a browser to send. The browser adds
// a stored password or certificate to such a request, and sends no preflight request first, because
// the proxy requires no Content-Type. Clients other than browsers send none of the headers that
// crossOrigin checks.
var crossOrigin = http.NewCrossOriginProtection()

// These names identify sessions in requests and in the log.
const (
	// sessionCookie is the cookie with the id of a session. A browser accepts a cookie with the
	// prefix __Host- only over TLS, from this host itself, and for all paths.
	sessionCookie = "__Host-spdkgate"
	csrfHeader    = "X-Csrf-Token"
	// backgroundHeader marks a request that the console sends without a user action. Such a request
	// does not count as a use of the session.
	backgroundHeader = "X-Background"

	authSession = "session" // value of auth in the log
)

// authenticate identifies a request's user by the session or, without a session, by the request's
// credentials.
func (s *Server) authenticate(v *Visit) error {
	if id, ok := v.SessionID(); ok {
		return s.resume(v, id)
	}
	return s.AuthenticateByCredentials(v)
}

// AuthenticateByCredentials identifies a request's user by its credentials. It ignores any session.
func (s *Server) AuthenticateByCredentials(v *Visit) error {
	who, err := v.current.Authn.Authenticate(v.R.Context(), v.Evidence())
	v.X.NoteSender(v.current.Authn, who, err)
	if v.sentByPage() {
		v.X.Sender.Challenges = nil // the page, rather than the browser, asks for credentials
	}
	return err
}

// resume identifies a request's user by the session. If the current settings no longer contain the
// credential with which the session began, the session ends.
func (s *Server) resume(v *Visit, id string) error {
	found, ok := s.Sessions.Find(id)
	err := gate.ErrSessionEnded
	if ok {
		err = v.current.Authn.Holds(found.Value.Binding, v.Evidence())
	}
	if errors.Is(err, authn.ErrCredentialChanged) {
		s.Sessions.End(found)
	}
	v.noteSession(found, err)
	v.X.SessionEnded = func() bool {
		_, ok := s.Sessions.Find(id)
		return !ok
	}
	return err
}

// Evidence returns everything in the request that can identify its user.
func (v *Visit) Evidence() authn.Evidence { return evidence(v.R, v.X.Source) }

func evidence(r *http.Request, source auditlog.Source) authn.Evidence {
	e := authn.Evidence{Authorization: r.Header["Authorization"], Source: source.Address.Addr()}
	if r.TLS != nil {
		e.Certificates = r.TLS.PeerCertificates
	}
	return e
}

// SessionID returns the id of the request's session, provided that the console is enabled and there
// is no Authorization header, which takes precedence. If the request contains several cookies with
// the session cookie's name, the id is "", which never identifies a session.
func (v *Visit) SessionID() (id string, ok bool) { return SessionID(v.current, v.R) }

// SessionID is like Visit.SessionID, but for a request that has not arrived at the gate.
func SessionID(current *gate.Settings, r *http.Request) (id string, ok bool) {
	if !current.Console.Enabled || len(r.Header["Cookie"]) == 0 || len(r.Header["Authorization"]) > 0 {
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

// noteSession records a request's session. The response will contain no challenge, so that the
// browser does not ask for a name and password.
func (v *Visit) noteSession(found session.Session[SignedIn], err error) {
	v.X.Sender = gate.Sender{User: found.User, Unauthenticated: err != nil, Auth: authSession, Credential: found.Name}
	// add the credential, which identifies the person, because the user may be a group of people
	if began := found.Value.Binding.Identity().Credential; began != "" {
		v.X.Sender.Credential += ", " + began
	}
	if err == nil {
		v.Session = &found
	}
}

// sentByPage reports whether a script on one of this proxy's pages sent the request.
func (v *Visit) sentByPage() bool {
	return v.R.Header.Get("Sec-Fetch-Site") == "same-origin" && v.R.Header.Get("Sec-Fetch-Dest") == "empty"
}

// sentInBackground reports whether a page sent the request without a user action, or to reconnect
// to an event stream, for which a page cannot set headers.
func (v *Visit) sentInBackground() bool {
	return v.R.Header.Get(backgroundHeader) != "" || v.R.Header.Get("Accept") == eventStreamType
}

// CheckCrossOrigin refuses a request, with any HTTP method, that another site's page caused a
// browser to send. Such a page could not read the response to a GET, but it could exhaust the
// user's streams, memory and calls.
func CheckCrossOrigin(r *http.Request) error {
	if r.Method != http.MethodPost {
		r = r.WithContext(r.Context())
		r.Method = http.MethodPost // crossOrigin accepts methods that change nothing
	}
	if crossOrigin.Check(r) != nil {
		return gate.ErrCrossOrigin
	}
	return nil
}

// checkOrigin refuses a request that the browser sent with the user's credentials on behalf of
// another site's page, or of a page without the session's token.
func (v *Visit) checkOrigin() error {
	if err := CheckCrossOrigin(v.R); err != nil {
		return err
	}
	if v.Session == nil || v.R.Method == http.MethodGet || v.R.Method == http.MethodHead {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(v.R.Header.Get(csrfHeader)), []byte(v.Session.CSRF)) != 1 {
		return gate.ErrCSRF
	}
	return nil
}

// SetSessionCookie sets the browser's session cookie, or removes it if id is "".
func SetSessionCookie(w http.ResponseWriter, id string) {
	c := http.Cookie{Name: sessionCookie, Value: id, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if id == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}
