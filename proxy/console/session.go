package console

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A SessionAnswer describes the session or credentials of a request.
type SessionAnswer struct {
	User          string   `json:"user"`
	Roles         []string `json:"roles"`
	Tenant        *string  `json:"tenant"`
	Method        string   `json:"method"`
	CSRF          string   `json:"csrf"`
	Administrator bool     `json:"administrator"`
	Release       *string  `json:"release"` // release of the target
	Version       string   `json:"version"` // version of the proxy
	IdleSeconds   int      `json:"idle_seconds"`
	Expires       string   `json:"expires"`
	Grafana       string   `json:"grafana,omitempty"` // template of a URL; not for tenants, because a dashboard shows the whole server
}

func (s *Server) describeSession(current *gate.Settings, signedIn session.Session[web.SignedIn]) SessionAnswer {
	a := SessionAnswer{
		User: signedIn.User, Roles: current.Policy.Roles(signedIn.User), Method: signedIn.Value.Way, CSRF: signedIn.CSRF, Administrator: current.Administrator(signedIn.User),
		Version: s.Version, IdleSeconds: int(time.Duration(current.Console.Idle).Seconds()), Expires: signedIn.Ends.UTC().Format(time.RFC3339),
	}
	if scope := current.Tenancy.Of(signedIn.User); scope != nil {
		a.Tenant = &scope.Name
	} else {
		a.Grafana = current.Console.Grafana
	}
	if state := s.Gate.Target.State(); state.Release.Known() {
		a.Release = new(state.Release.String())
	}
	return a
}

// waysAnswer lists the ways in which the user can sign in.
type waysAnswer struct {
	Ways struct {
		Password    bool `json:"password"`
		Token       bool `json:"token"`
		Certificate bool `json:"certificate"`
		OIDC        bool `json:"oidc"`
	} `json:"ways"`
}

func waysFor(current *gate.Settings, r *http.Request) (a waysAnswer) {
	a.Ways.Password, a.Ways.Token = current.Authn.TakesPasswords(), current.Authn.TakesBearer()
	a.Ways.OIDC = current.Authn.TakesCodes()
	a.Ways.Certificate = current.Authn.TakesCertificates() && r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	return a
}

// serveSession returns the user of the request's session, or the available ways to sign in.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) {
	current := s.Gate.Settings()
	if _, ok := web.SessionID(current, r); !ok {
		web.WriteJSON(w, http.StatusUnauthorized, waysFor(current, r))
		return
	}
	s.Web.Page(web.Page{Method: SessionMethod, Write: writeJSON, Fail: func(v *web.Visit, c *gate.Call) {
		if c.Answer().Status != http.StatusUnauthorized {
			fail(v, c)
			return
		}
		w.Header().Del("Connection") // the sign-in follows
		web.SetSessionCookie(w, "")
		web.WriteJSON(w, http.StatusUnauthorized, waysFor(current, r))
	}})(w, r)
}

// Session serves SessionMethod.
func (s *Server) Session(_ context.Context, r *gate.Request) (any, error) {
	found := visitOf(r).Session
	if found == nil {
		return nil, gate.ErrSessionEnded
	}
	return s.describeSession(r.Settings, *found), nil
}

// maxSignIn is the maximum size of the body of a sign-in request, in bytes. Tokens in headers have
// the same limit.
const maxSignIn = 16 << 10

// A signIn contains the credentials in a sign-in request, and the outcome.
type signIn struct {
	with    authn.SignIn
	binding authn.Binding
	way     string
}

// identifySignIn authenticates the user of a sign-in request by the credentials in its body.
func (s *Server) identifySignIn(v *web.Visit) error {
	v.X.Sender.Unauthenticated = true
	in := &signIn{}
	v.Data = in
	var err error
	if in.with, err = readSignIn(v); err != nil {
		return err
	}
	in.way = wayOf[in.with.Method]
	return s.authenticate(v, in)
}

// authenticate checks the credentials of a sign-in request.
func (s *Server) authenticate(v *web.Visit, in *signIn) error {
	by := v.Settings().Authn
	who, binding, err := by.SignIn(v.R.Context(), in.with, v.Evidence())
	in.binding = binding
	v.X.NoteSender(by, who, err)
	return err
}

// SignIn serves SignInMethod, which begins a session with a new id. If the request belongs to an
// existing session, SignIn ends that session.
func (s *Server) SignIn(_ context.Context, r *gate.Request) (any, error) {
	v := visitOf(r)
	if former, ok := v.SessionID(); ok {
		if found, ok := s.Sessions.Find(former); ok {
			s.Sessions.End(found)
		}
	}
	in := v.Data.(*signIn)
	id, began := s.Sessions.Begin(in.binding.Identity().User, web.SignedIn{Binding: in.binding, Way: in.way}, in.binding.Until)
	r.Call.NoteParams(map[string]any{"session": began.Name})
	web.SetSessionCookie(v.W, id)
	return s.describeSession(r.Settings, began), nil
}

// wayOf maps authentication methods to the console's names for them.
var wayOf = map[authn.Method]string{authn.ByPassword: "password", authn.ByToken: "token", authn.ByCertificate: "certificate"}

var errSignIn = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, `to sign in, send {"user": …, "password": …}, {"token": …} or {} (client certificate) with Content-Type: application/json`)

// readSignIn reads the credentials in a sign-in request. It requires a content type for which
// browsers send a preflight request before a request from another site's page.
func readSignIn(v *web.Visit) (in authn.SignIn, err error) {
	if err := web.CheckCrossOrigin(v.R); err != nil {
		return in, err
	}
	if kind, _, err := mime.ParseMediaType(v.R.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return in, errSignIn
	}
	body, err := v.ReadBody(maxSignIn)
	if err != nil {
		return in, err
	}
	var given struct {
		User     *string `json:"user"`
		Password *string `json:"password"`
		Token    *string `json:"token"`
	}
	// Do not return this error, because it may contain a secret.
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

func failSignIn(v *web.Visit, c *gate.Call) {
	in, _ := v.Data.(*signIn)
	if in == nil {
		in = &signIn{}
	}
	web.WriteMessage(v.W, c.Answer(), signInMessage(in.with, c.Err(), c.Answer()))
}

// signInMessage returns a message that explains why a sign-in failed.
func signInMessage(in authn.SignIn, err error, a gate.Answer) string {
	var reason *authn.RejectedError
	switch {
	case errors.As(err, &reason) || !errors.Is(err, authn.ErrWrongCredentials) && !errors.Is(err, authn.ErrNoCredentials):
		return a.Err.Message
	case in.Method == authn.ByPassword:
		return "the name or the password is wrong"
	case in.Method == authn.ByToken:
		return "the token is wrong"
	}
	return "the browser sent no client certificate of a user of this proxy"
}

// SignOut serves SignOutMethod, which ends the session of the request or, with everywhere=1, all of
// the user's sessions.
func (s *Server) SignOut(_ context.Context, r *gate.Request) (any, error) {
	v, ended := visitOf(r), 0
	switch {
	case v.R.URL.Query().Get("everywhere") == "1":
		ended = s.Sessions.EndAll(r.User, ownSessions(v))
	case v.Session != nil:
		s.Sessions.End(*v.Session)
		ended = 1
	}
	web.SetSessionCookie(v.W, "")
	return map[string]int{"ended": ended}, nil
}

// ownSessions returns a filter for the sessions that "sign out everywhere" ends, or nil for all of
// the user's sessions. If the request's session began with a JWT, the filter selects sessions with
// the same subject, because the user may be a group of people.
func ownSessions(v *web.Visit) func(other web.SignedIn) bool {
	if v.Session == nil {
		return nil
	}
	own := v.Session.Value.Binding.Identity()
	if own.Method != authn.ByJWT && own.Method != authn.ByCode {
		return nil
	}
	return func(other web.SignedIn) bool { return other.Binding.Identity().Credential == own.Credential }
}
