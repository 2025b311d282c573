package proxy

import (
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// authenticate identifies the sender of a request: by its session, or else by its credentials.
func (s *Server) authenticate(now *settings, x *exchange, r *http.Request) error {
	if x.noSource != nil {
		x.sender.unauthenticated = true
		return x.noSource
	}
	if id, ok := sessionOf(now, r); ok {
		return s.resume(now, x, r, id)
	}
	who, err := now.authn.Authenticate(r.Context(), credentialsFrom(r, x.source))
	x.noteSender(now.authn, who, err)
	if sentByPage(r) {
		x.sender.challenges = nil // the page asks for credentials, not the browser
	}
	return err
}

// resume identifies the sender of a request by its session. The session ends if the current
// settings no longer have the credential with which it began.
func (s *Server) resume(now *settings, x *exchange, r *http.Request, id string) error {
	found, ok := s.sessions.Find(id)
	err := errSessionEnded
	if ok {
		err = now.authn.Holds(found.Value.binding, credentialsFrom(r, x.source))
	}
	if errors.Is(err, authn.ErrCredentialChanged) {
		s.sessions.End(found)
	}
	x.noteSession(found, err)
	return err
}

// A sessionAnswer describes the session, or the credentials, of a request.
type sessionAnswer struct {
	User          string   `json:"user"`
	Roles         []string `json:"roles"`
	Tenant        *string  `json:"tenant"`
	Method        string   `json:"method"`
	CSRF          string   `json:"csrf"`
	Administrator bool     `json:"administrator"`
	Release       *string  `json:"release"` // of the target
	Version       string   `json:"version"` // of the proxy
	IdleSeconds   int      `json:"idle_seconds"`
	Expires       string   `json:"expires"`
}

func (s *Server) describeSession(now *settings, of session.Session[signedIn]) sessionAnswer {
	a := sessionAnswer{
		User: of.User, Roles: now.policy.Roles(of.User), Method: of.Value.way, CSRF: of.CSRF, Administrator: now.administrator(of.User),
		Version: s.version, IdleSeconds: int(time.Duration(now.console.Idle).Seconds()), Expires: of.Ends.UTC().Format(time.RFC3339),
	}
	if scope := now.tenancy.Of(of.User); scope != nil {
		a.Tenant = &scope.Name
	}
	if release := releaseOf(s.target.State()); release != "" {
		a.Release = &release
	}
	return a
}

// waysAnswer lists how the sender of a request can sign in.
type waysAnswer struct {
	Ways struct {
		Password    bool `json:"password"`
		Token       bool `json:"token"`
		Certificate bool `json:"certificate"`
		OIDC        bool `json:"oidc"`
	} `json:"ways"`
}

func waysFor(now *settings, r *http.Request) (a waysAnswer) {
	a.Ways.Password, a.Ways.Token = now.authn.TakesPasswords(), now.authn.TakesBearer()
	a.Ways.OIDC = now.authn.TakesCodes()
	a.Ways.Certificate = now.authn.TakesCertificates() && r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	return a
}

// serveSession answers whose session a request belongs to, or how to sign in. It is not a call: the
// page asks this whenever it is opened.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) {
	now := s.settings.Load()
	if _, ok := sessionOf(now, r); !ok {
		writeJSON(w, http.StatusUnauthorized, waysFor(now, r))
		return
	}
	x := newExchange(r, s.balancers)
	err := s.enter(now, x, w, r)
	if x.entered {
		defer s.inFlight.leave()
	}
	switch refused := answerTo(err); {
	case err == nil:
		writeJSON(w, http.StatusOK, s.describeSession(now, *x.sender.session))
	case refused.status == http.StatusUnauthorized:
		w.Header().Del("Connection") // the sign-in follows
		setSessionCookie(w, "")
		writeJSON(w, http.StatusUnauthorized, waysFor(now, r))
	default:
		writeMessage(w, refused, refused.err.Message)
	}
}

// serveSignIn begins a session.
func (s *Server) serveSignIn(w http.ResponseWriter, r *http.Request) {
	x, now := newExchange(r, s.balancers), s.settings.Load()
	w.Header().Set("X-Request-Id", x.id)
	in, id, began, err := s.signIn(now, x, w, r)
	if x.entered {
		defer s.inFlight.leave()
	}
	var params map[string]any
	if err == nil {
		params = map[string]any{"session": began.Name}
	}
	answered := s.noteConsole(x, signInMethod, params, err)
	if err != nil {
		writeMessage(w, answered, signInMessage(in, err, answered))
		return
	}
	setSessionCookie(w, id)
	writeJSON(w, http.StatusOK, s.describeSession(now, began))
}

// maxSignIn bounds the body of a request that signs in, in bytes. A token in a header is not longer, either.
const maxSignIn = 16 << 10

// signIn begins a session, with a new id. A session to which the request belongs ends.
func (s *Server) signIn(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (in authn.SignIn, id string, began session.Session[signedIn], err error) {
	defer s.recoverFrom(x, &err)
	x.sender.unauthenticated = true
	if x.noSource != nil {
		return in, "", began, x.noSource
	}
	if in, err = s.receiveSignIn(now, x, w, r); err != nil {
		s.skipBody(w)
		return in, "", began, err
	}
	who, binding, err := now.authn.SignIn(r.Context(), in, credentialsFrom(r, x.source))
	x.noteSender(now.authn, who, err)
	if err != nil {
		return in, "", began, err
	}
	if !s.clients.Authenticated(connOf(r)) {
		return in, "", began, errGone
	}
	id, began = s.beginSession(now, r, binding, wayOf[in.Method])
	return in, id, began, nil
}

// beginSession begins a session, and ends the one to which the request belongs.
func (s *Server) beginSession(now *settings, r *http.Request, binding authn.Binding, way string) (id string, began session.Session[signedIn]) {
	if former, ok := sessionOf(now, r); ok {
		if found, ok := s.sessions.Find(former); ok {
			s.sessions.End(found)
		}
	}
	return s.sessions.Begin(binding.Identity().User, signedIn{binding, way}, binding.Until)
}

// wayOf names the ways to sign in for the console.
var wayOf = map[authn.Method]string{authn.ByPassword: "password", authn.ByToken: "token", authn.ByCertificate: "certificate"}

var errSignIn = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, `to sign in, send {"user": …, "password": …}, {"token": …} or {} (client certificate) with Content-Type: application/json`)

// receiveSignIn reads what a request signs in with. The type of the body makes a browser ask for
// permission before it sends the request for a page of another site.
func (s *Server) receiveSignIn(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (in authn.SignIn, err error) {
	if crossOrigin.Check(r) != nil {
		return in, errCrossOrigin
	}
	if err := s.inFlight.enter(connOf(r)); err != nil {
		return in, err
	}
	x.entered = true
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return in, errSignIn
	}
	body, err := readBody(w, r, maxSignIn, now.read)
	if err != nil {
		return in, err
	}
	var given struct {
		User     *string `json:"user"`
		Password *string `json:"password"`
		Token    *string `json:"token"`
	}
	// The error could repeat a secret.
	if json.Unmarshal(body, &given, json.RejectUnknownMembers(true)) != nil {
		return in, errSignIn
	}
	switch {
	case given.User != nil && given.Password != nil && given.Token == nil:
		return authn.SignIn{Method: authn.ByPassword, User: *given.User, Password: *given.Password}, nil
	case given.User != nil || given.Password != nil:
		return in, errSignIn
	case given.Token != nil:
		return authn.SignIn{Method: authn.ByToken, Token: *given.Token}, nil
	}
	return authn.SignIn{Method: authn.ByCertificate}, nil
}

// signInMessage says why a sign-in failed.
func signInMessage(in authn.SignIn, err error, a answer) string {
	var reason *authn.RejectedError
	switch {
	case errors.As(err, &reason) || !errors.Is(err, authn.ErrWrongCredentials) && !errors.Is(err, authn.ErrNoCredentials):
		return a.err.Message
	case in.Method == authn.ByPassword:
		return "the name or the password is wrong"
	case in.Method == authn.ByToken:
		return "the token is wrong"
	}
	return "the browser sent no client certificate of a user of this proxy"
}

// serveSignOut ends the session of a request, or with everywhere=1 all sessions of its user.
func (s *Server) serveSignOut(w http.ResponseWriter, r *http.Request) {
	s.serveConsole(w, r, signOutMethod, func(_ *settings, x *exchange) (any, error) {
		ended := 0
		switch {
		case r.URL.Query().Get("everywhere") == "1":
			ended = s.sessions.EndAll(x.sender.user, ownSessions(x))
		case x.sender.session != nil:
			s.sessions.End(*x.sender.session)
			ended = 1
		}
		setSessionCookie(w, "")
		return map[string]int{"ended": ended}, nil
	})
}

// ownSessions reports which sessions of a user end everywhere with that of a request: all of them,
// but if it began with a JWT, those of the same subject, because a user may be a group of people.
func ownSessions(x *exchange) func(of signedIn) bool {
	if x.sender.session == nil {
		return nil
	}
	own := x.sender.session.Value.binding.Identity()
	if own.Method != authn.ByJWT && own.Method != authn.ByCode {
		return nil
	}
	return func(of signedIn) bool { return of.binding.Identity().Credential == own.Credential }
}

// setSessionCookie gives the browser the id of a session, or takes it away if id is "".
func setSessionCookie(w http.ResponseWriter, id string) {
	c := http.Cookie{Name: sessionCookie, Value: id, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if id == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}
