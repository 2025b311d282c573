package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// A browser is a client with a console session.
type browser struct {
	t      *testing.T
	client *http.Client
	base   string
	cookie string // id of the session
	csrf   string
}

func (b *bench) browser() *browser {
	return &browser{t: b.t, client: b.http.Client(), base: b.http.URL}
}

// do sends a request with the session's cookie and CSRF token. It omits empty headers.
func (b *browser) do(method, path, body string, header ...string) got {
	b.t.Helper()
	r, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
	require.NoError(b.t, err)
	r.Header.Set("Content-Type", "application/json")
	if b.cookie != "" {
		r.Header.Set("Cookie", sessionCookie+"="+b.cookie)
	}
	if method != http.MethodGet {
		r.Header.Set(csrfHeader, b.csrf)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	resp, err := b.client.Do(r)
	require.NoError(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	for _, c := range resp.Cookies() {
		if c.Name == sessionCookie {
			b.cookie = c.Value
		}
	}
	return got{resp, string(text)}
}

// signIn begins a session and stores its token.
func (b *browser) signIn(body string) (answer console.SessionAnswer) {
	b.t.Helper()
	resp := b.do("POST", "/console/session", body)
	require.Equal(b.t, http.StatusOK, resp.StatusCode, resp.body)
	require.NoError(b.t, json.Unmarshal([]byte(resp.body), &answer))
	b.csrf = answer.CSRF
	return answer
}

func passwordOf(user, password string) string {
	return fmt.Sprintf(`{"user":%q,"password":%q}`, user, password)
}

// call makes a call that every user in this test may make, and returns the status.
func (b *browser) call() int { b.t.Helper(); return b.do("POST", "/", version).StatusCode }

func (g got) message(t *testing.T) string {
	var m struct{ Message string }
	require.NoError(t, json.Unmarshal([]byte(g.body), &m), g.body)
	return m.Message
}

// A testClock is the clock of a test's sessions.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// withClock replaces the clock of a proxy's sessions.
func withClock(s *Server) *testClock {
	c := &testClock{at: time.Now()}
	s.sessions = session.New[web.SignedIn](s.gate.Settings().SessionLimits(), c.now)
	s.web.Sessions, s.console.Sessions = s.sessions, s.sessions
	return c
}

func TestUserSignsInWithAPassword(t *testing.T) {
	b := newSafeBench(t, "v26.05", func(c *config.Config) {
		c.Users[1].Tenant = "team"
		c.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs-team"}}}
	})
	u := b.browser()
	resp := u.do("GET", "/console/session", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.JSONEq(t, `{"ways":{"password":true,"token":false,"certificate":false,"oidc":false}}`, resp.body)
	assert.Empty(t, resp.Header.Values("Www-Authenticate"), "the browser must not ask for a password by itself")

	before := time.Now()
	resp = u.do("POST", "/console/session", passwordOf("admin", adminPassword))
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, sessionCookie+"="+u.cookie+"; Path=/; HttpOnly; Secure; SameSite=Strict", resp.Header.Get("Set-Cookie"))
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	var began console.SessionAnswer
	require.NoError(t, json.Unmarshal([]byte(resp.body), &began))
	u.csrf = began.CSRF
	expires, err := time.Parse(time.RFC3339, began.Expires)
	require.NoError(t, err)
	assert.WithinRange(t, expires, before.Add(12*time.Hour-time.Second), time.Now().Add(12*time.Hour))
	assert.NotEmpty(t, began.CSRF)
	assert.Equal(t, console.SessionAnswer{
		User: "admin", Roles: []string{"admin"}, Method: "password", CSRF: began.CSRF, Administrator: true, Release: began.Release, IdleSeconds: 1800, Expires: began.Expires,
	}, began)
	line := b.lastCall()
	assert.Equal(t, []any{"admin", "basic", "console.sign_in", "allow", 200.0}, []any{line["user"], line["auth"], line["method"], line["decision"], line["status"]})
	sessionName := line["params"].(map[string]any)["session"].(string) + ", " + line["credential"].(string)

	require.Equal(t, http.StatusOK, u.call())
	line = b.lastCall()
	assert.Equal(t, []any{"admin", "session", sessionName, "spdk_get_version"}, []any{line["user"], line["auth"], line["credential"], line["method"]})
	_, err = b.proxy.target.Probe(t.Context())
	require.NoError(t, err)
	resp = u.do("GET", "/console/session", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.Unmarshal([]byte(resp.body), &began))
	require.NotNil(t, began.Release)
	assert.Equal(t, "v26.05", *began.Release)
	assert.Equal(t, http.StatusOK, u.do("GET", "/openrpc.json", "").StatusCode)
	assert.Equal(t, http.StatusOK, u.do("GET", "/metrics", "").StatusCode)

	viewer := b.browser()
	got := viewer.signIn(passwordOf("viewer", viewerPassword))
	require.NotNil(t, got.Tenant)
	assert.Equal(t, "team", *got.Tenant)
	assert.False(t, got.Administrator)
	assert.Equal(t, http.StatusForbidden, viewer.do("POST", "/", createMalloc).StatusCode, "policy decides as for requests with the password")
	assert.Equal(t, http.StatusForbidden, viewer.do("GET", "/metrics", "").StatusCode)
	assert.Equal(t, "team", viewer.lastTenant(b))
}

// lastTenant makes a call in the session, and returns the tenant that was logged for the call.
func (b *browser) lastTenant(of *bench) any {
	b.do("POST", "/", `{"id":1,"method":"bdev_get_bdevs"}`)
	return of.lastCall()["tenant"]
}

// Sign-ins with wrong credentials are refused, counted and logged like calls with wrong
// credentials.
func TestSignInWithWrongCredentialsIsRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	for body, says := range map[string]string{
		passwordOf("admin", "wrong"):                     "the name or the password is wrong",
		passwordOf("nobody", adminPassword):              "the name or the password is wrong",
		passwordOf("admin:correct horse", adminPassword): "the name or the password is wrong",
		passwordOf("", ""):                               "the name or the password is wrong",
		`{"token":"none"}`:                               "the token is wrong",
		`{"token":""}`:                                   "the token is wrong",
		`{"token":"spdkgate_none"}`:                      "authentication failed: the token is incomplete or mistyped: send it exactly as it was issued",
		`{}`:                                             "the browser sent no client certificate of a user of this proxy",
	} {
		resp := u.do("POST", "/console/session", body)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, body)
		assert.Equal(t, says, resp.message(t), body)
		assert.Empty(t, resp.Cookies())
		assert.Empty(t, resp.Header.Values("Www-Authenticate"))
		line := b.lastCall()
		assert.Equal(t, []any{"unauthenticated", "console.sign_in"}, []any{line["decision"], line["method"]}, body)
	}
	b.proxy.auditLog.Flush()
	for _, body := range []string{"", "[]", "{", `{"user":"admin"}`, `{"password":"x"}`, `{"user":"admin","password":"x","token":"y"}`, `{"user":"admin","user":"admin","password":"correct horse"}`, `{"USER":"admin","password":"correct horse"}`, `{"a":1}`, `{"user":1,"password":2}`} {
		resp := u.do("POST", "/console/session", body)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, body)
		assert.Contains(t, resp.message(t), "to sign in, send")
	}
	assert.Equal(t, http.StatusBadRequest, u.do("POST", "/console/session", passwordOf("admin", adminPassword), "Content-Type", "text/plain").StatusCode, "a form of another site could send that")
	assert.Equal(t, http.StatusRequestEntityTooLarge, u.do("POST", "/console/session", passwordOf("admin", strings.Repeat("x", 16<<10))).StatusCode)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://attacker.example"}} {
		resp := u.do("POST", "/console/session", passwordOf("admin", adminPassword), header...)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, header)
		assert.Empty(t, resp.Cookies())
	}
	assert.Zero(t, b.proxy.sessions.Count())
}

func TestFailedSignInsAndCallsShareALimit(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	for range 5 {
		require.Equal(t, http.StatusUnauthorized, b.do("POST", "/", "admin", "wrong", strings.NewReader(version)).StatusCode)
		require.Equal(t, http.StatusUnauthorized, u.do("POST", "/console/session", passwordOf("admin", "wrong")).StatusCode)
	}
	resp := u.do("POST", "/console/session", passwordOf("admin", adminPassword))
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Contains(t, resp.message(t), "too many failed logins")
	assert.Equal(t, http.StatusTooManyRequests, b.do("POST", "/", "admin", adminPassword, strings.NewReader(version)).StatusCode)
}

// A request that does not come from the session's own page is refused, and nothing is executed.
func TestForgedRequestsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	u, other := b.browser(), b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	other.signIn(passwordOf("admin", adminPassword))
	for name, header := range map[string][]string{
		"no token":                 {csrfHeader, ""},
		"a wrong token":            {csrfHeader, string(u.csrf[0]^1) + u.csrf[1:]},
		"a longer token":           {csrfHeader, u.csrf + "A"},
		"token of another session": {csrfHeader, other.csrf},
		"the session's id":         {csrfHeader, u.cookie},
		"another site":             {"Sec-Fetch-Site", "cross-site"},
		"another port":             {"Sec-Fetch-Site", "same-site"},
		"an older browser":         {"Origin", "https://attacker.example"},
	} {
		resp := u.do("POST", "/", createMalloc, header...)
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, name)
		line := b.lastCall()
		assert.Equal(t, []any{"admin", "session"}, []any{line["user"], line["auth"]}, "the log shows whose browser it was")
		assert.Equal(t, http.StatusForbidden, u.do("DELETE", "/console/session", "", header...).StatusCode, name)
		assert.Equal(t, http.StatusForbidden, u.do("DELETE", "/console/session?everywhere=1", "", header...).StatusCode, name)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/openrpc.json", "/metrics", "/console/session"} {
			resp := u.do("GET", path, "", "Sec-Fetch-Site", site)
			assert.Equal(t, http.StatusForbidden, resp.StatusCode, path)
			assert.NotContains(t, resp.body, u.csrf)
		}
	}
	assert.Empty(t, b.reached())
	for _, site := range []string{"same-origin", "none", ""} {
		assert.Equal(t, http.StatusOK, u.do("GET", "/openrpc.json", "", "Sec-Fetch-Site", site).StatusCode, site)
	}
	assert.Equal(t, http.StatusOK, u.do("POST", "/", createMalloc, "Sec-Fetch-Site", "same-origin", "Origin", u.base).StatusCode)
	assert.Equal(t, []string{"bdev_malloc_create"}, b.reached())
}

// Signing out ends the session, so that a copy of the cookie becomes useless.
func TestSignOutEndsTheSession(t *testing.T) {
	b := newBench(t, "v26.05")
	u, second, viewer := b.browser(), b.browser(), b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	second.signIn(passwordOf("admin", adminPassword))
	viewer.signIn(passwordOf("viewer", viewerPassword))
	thief := *u
	require.Equal(t, http.StatusOK, thief.call())
	resp := u.do("DELETE", "/console/session", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"ended":1}`, resp.body)
	assert.Contains(t, resp.Header.Get("Set-Cookie"), sessionCookie+"=; Path=/; Max-Age=0; HttpOnly; Secure")
	assert.Equal(t, "console.sign_out", b.lastCall()["method"])
	for range 2 {
		stolen := thief.do("POST", "/", version)
		assert.Equal(t, http.StatusUnauthorized, stolen.StatusCode)
		assert.Contains(t, stolen.body, "the session has ended")
		assert.Empty(t, stolen.Header.Values("Www-Authenticate"))
		thief.cookie = u.cookie + thief.cookie
	}
	require.Equal(t, http.StatusOK, second.call())

	third := b.browser()
	third.signIn(passwordOf("admin", adminPassword))
	assert.JSONEq(t, `{"ended":2}`, third.do("DELETE", "/console/session?everywhere=1", "").body)
	assert.Equal(t, http.StatusUnauthorized, second.call())
	assert.Equal(t, http.StatusOK, viewer.call(), "sessions of other users continue")
	// With a password, a user can sign out everywhere even without a session.
	resp = b.do("DELETE", "/console/session?everywhere=1", "viewer", viewerPassword, nil)
	assert.JSONEq(t, `{"ended":1}`, resp.body)
	assert.Equal(t, http.StatusUnauthorized, viewer.call())
}

// An attacker cannot make a user use a session with an id known to the attacker, because each
// sign-in creates a new id.
func TestSessionFixationIsPrevented(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	u.cookie = strings.Repeat("A", 43)
	u.signIn(passwordOf("admin", adminPassword))
	assert.NotEqual(t, strings.Repeat("A", 43), u.cookie)
	first := *u
	u.signIn(passwordOf("viewer", viewerPassword))
	assert.NotEqual(t, first.cookie, u.cookie)
	assert.Equal(t, http.StatusUnauthorized, first.call(), "the previous session has ended")
	assert.Equal(t, 1, b.proxy.sessions.Count())
	twice := u.do("POST", "/", version, "Cookie", sessionCookie+"="+u.cookie+"; "+sessionCookie+"="+u.cookie)
	assert.Equal(t, http.StatusUnauthorized, twice.StatusCode, "two cookies")
	assert.Equal(t, http.StatusOK, u.do("POST", "/", version, "Cookie", "other=1; "+sessionCookie+"="+u.cookie+"; a=b").StatusCode)
}

func TestHeaderTakesPrecedenceOverSession(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	resp := u.do("POST", "/", version, "Authorization", basicHeader("admin", "wrong"))
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Values("Www-Authenticate"), "a program other than the console sent this header")
	assert.Empty(t, u.do("POST", "/", version, "Authorization", basicHeader("admin", "wrong"), "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty").Header.Values("Www-Authenticate"))
	resp = u.do("POST", "/", createMalloc, "Authorization", basicHeader("viewer", viewerPassword), csrfHeader, "")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	assert.Equal(t, []any{"viewer", "basic"}, []any{b.lastCall()["user"], b.lastCall()["auth"]})
}
