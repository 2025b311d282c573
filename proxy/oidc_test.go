package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/console"
)

// An oidcWorld is a proxy whose users can sign in at an issuer's page.
type oidcWorld struct {
	*bench
	issuer *authntest.Issuer
}

const clientSecret = "client secret 4711"

func newOIDC(t *testing.T, more map[string]any) *oidcWorld {
	w := &oidcWorld{issuer: authntest.NewIssuer(t)}
	w.issuer.Register("console", clientSecret, "ann@example", more)
	dir := t.TempDir()
	ca, secret := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(ca, w.issuer.CA, 0o600))
	require.NoError(t, os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600))
	w.bench = newBench(t, "v26.05", func(c *config.Config) {
		c.OIDC = []config.OIDC{{Name: "sso", Issuer: w.issuer.URL, Audience: "spdk-proxy", CAFile: ca, Console: &config.OIDCConsole{
			ClientID: "console", ClientSecretFile: secret, RedirectURL: "https://storage-1:9009/console/oidc/callback", Scopes: []string{"groups"},
		}}}
		c.Users = append(c.Users, config.User{Name: "ann", JWT: &config.JWT{Issuer: "sso", Subject: "ann@example"}, Roles: []string{"viewer"}})
	})
	w.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w
}

// A journey is a sign-in at the issuer's page, up to the redirect back to the proxy.
type journey struct {
	ticket string
	back   url.Values // query of the redirect to the proxy
	page   url.Values // query sent to the issuer
}

// begin visits the issuer's page, and stops at the redirect to the proxy.
func (w *oidcWorld) begin(u *browser) (j journey) {
	w.t.Helper()
	resp := u.do("GET", "/console/oidc/start", "")
	require.Equal(w.t, http.StatusFound, resp.StatusCode, resp.body)
	require.Len(w.t, resp.Cookies(), 1)
	j.ticket = resp.Cookies()[0].Value
	to, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(w.t, err)
	require.Equal(w.t, w.issuer.URL+"/authorize", to.Scheme+"://"+to.Host+to.Path)
	j.page = to.Query()
	pool := x509.NewCertPool()
	require.True(w.t, pool.AppendCertsFromPEM(w.issuer.CA))
	visitor := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := visitor.Get(to.String())
	require.NoError(w.t, err)
	require.NoError(w.t, answer.Body.Close())
	require.Equal(w.t, http.StatusFound, answer.StatusCode)
	back, err := url.Parse(answer.Header.Get("Location"))
	require.NoError(w.t, err)
	assert.Equal(w.t, "https://storage-1:9009/console/oidc/callback", "https://"+back.Host+back.Path)
	j.back = back.Query()
	return j
}

// end follows the redirect from the issuer to the proxy.
func (w *oidcWorld) end(u *browser, j journey) got {
	w.t.Helper()
	header := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}
	if j.ticket != "" {
		header = append(header, "Cookie", flowCookie+"="+j.ticket)
	}
	return u.do("GET", "/console/oidc/callback?"+j.back.Encode(), "", header...)
}

func TestUserSignsInAtTheIssuer(t *testing.T) {
	w := newOIDC(t, nil)
	u := w.browser()
	assert.Contains(t, u.do("GET", "/console/session", "").body, `"oidc":true`)
	j := w.begin(u)
	assert.Equal(t, "openid groups", j.page.Get("scope"))
	assert.Equal(t, "S256", j.page.Get("code_challenge_method"))
	assert.NotEqual(t, j.page.Get("state"), j.page.Get("nonce"))
	resp := w.end(u, j)
	require.Equal(t, http.StatusOK, resp.StatusCode, resp.body)
	assert.Contains(t, resp.body, `<meta http-equiv="refresh" content="0;url=/console/">`)
	cookies := strings.Join(resp.Header.Values("Set-Cookie"), "\n")
	assert.Contains(t, cookies, sessionCookie+"="+u.cookie+"; Path=/; HttpOnly; Secure; SameSite=Strict")
	assert.Contains(t, cookies, flowCookie+"=; Path=/; Max-Age=0")
	line := w.lastCall()
	assert.Equal(t, []any{"ann", "oidc", "ann@example", "console.sign_in", "allow"}, []any{line["user"], line["auth"], line["credential"], line["method"], line["decision"]})

	a := decoded[console.SessionAnswer](t, u.do("GET", "/console/session", ""))
	assert.Equal(t, "oidc", a.Method)
	assert.Equal(t, "ann", a.User)
	expires, err := time.Parse(time.RFC3339, a.Expires)
	require.NoError(t, err)
	assert.Greater(t, time.Until(expires), 11*time.Hour, "the issuer's token is for the sign-in only")
	u.csrf = a.CSRF
	assert.Equal(t, http.StatusOK, u.call())

	// A reload that changes the user's rule ends the session.
	changed := *w.config
	changed.Users = append(changed.Users[:2:2], config.User{Name: "ann", JWT: &config.JWT{Issuer: "sso", Subject: "bob@example"}, Roles: []string{"viewer"}})
	require.NoError(t, w.proxy.Reload(&changed))
	assert.Equal(t, http.StatusUnauthorized, u.call())
}

func TestSignInTicketIsStoredInACookie(t *testing.T) {
	w := newOIDC(t, nil)
	resp := w.browser().do("GET", "/console/oidc/start", "")
	assert.Regexp(t, `^`+flowCookie+`=[\w-]+; Path=/; Max-Age=600; HttpOnly; Secure; SameSite=Lax$`, resp.Header.Get("Set-Cookie"))
}

// A browser that did not begin the sign-in, or that returns values that the issuer did not send,
// gets no session. The proxy does not even query the issuer.
func TestForgedRedirectsFromTheIssuerAreRefused(t *testing.T) {
	w := newOIDC(t, nil)
	u := w.browser()
	for name, change := range map[string]func(j *journey){
		"no ticket":                 func(j *journey) { j.ticket = "" },
		"two tickets":               func(j *journey) { j.ticket += "; " + flowCookie + "=" + j.ticket },
		"ticket of another sign-in": func(j *journey) { j.ticket = w.begin(u).ticket },
		"changed ticket":            func(j *journey) { j.ticket = map[bool]string{true: "B", false: "A"}[j.ticket[0] == 'A'] + j.ticket[1:] },
		"no state":                  func(j *journey) { j.back.Del("state") },
		"state of another sign-in":  func(j *journey) { j.back.Set("state", w.begin(u).back.Get("state")) },
		"code of another issuer":    func(j *journey) { j.back.Set("iss", "https://attacker.example") },
		"without a code":            func(j *journey) { j.back.Del("code") },
		"refused by the user":       func(j *journey) { j.back.Set("error", "access_denied") },
		"markup":                    func(j *journey) { j.back.Set("error", "<script>alert(1)</script>") },
	} {
		j := w.begin(u)
		change(&j)
		resp := w.end(u, j)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, name)
		assert.Empty(t, u.cookie, name)
		assert.NotContains(t, resp.body, "refresh", name)
		assert.NotContains(t, resp.body, "<script", name)
		w.proxy.auditLog.Flush()
	}
	assert.Zero(t, w.issuer.Exchanges())
	assert.Zero(t, w.proxy.sessions.Count())
}

// The proxy rejects codes and tokens that the issuer did not issue for this sign-in.
func TestCodesAndTokensOfOtherSignInsAreRejected(t *testing.T) {
	for says, more := range map[string]map[string]any{
		"belongs to another sign-in":         {"nonce": "another"},
		"belongs to another sign-in: sign":   {"nonce": nil},
		"for this proxy":                     {"aud": "spdk-proxy"},
		"was issued for another client":      {"azp": "another"},
		"the token expired on":               {"exp": time.Now().Add(-time.Hour).Unix()},
		"no user has its subject and claims": {"sub": "bob@example"},
	} {
		w := newOIDC(t, more)
		u := w.browser()
		resp := w.end(u, w.begin(u))
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, says)
		assert.Contains(t, resp.body, says)
		assert.Empty(t, u.cookie, says)
		assert.Equal(t, 1, w.issuer.Exchanges(), says)
	}
	w := newOIDC(t, nil)
	u := w.browser()
	first, second := w.begin(u), w.begin(u)
	second.back.Set("code", first.back.Get("code"))
	assert.Contains(t, w.end(u, second).body, "invalid_grant", "PKCE: the code of another sign-in has another verifier")
	assert.Contains(t, w.end(u, first).body, "invalid_grant", "a code is given away once")
	third := w.begin(u)
	require.Equal(t, http.StatusOK, w.end(u, third).StatusCode)
	assert.Equal(t, http.StatusUnauthorized, w.end(w.browser(), third).StatusCode, "the return cannot be repeated")
}

// If the issuer does not respond or returns invalid data, the sign-in fails, and the page shows the
// reason.
func TestSignInFailsIfTheIssuerFails(t *testing.T) {
	w := newOIDC(t, nil)
	u := w.browser()
	j := w.begin(u)
	w.issuer.AnswerExchanges("secret nonsense")
	resp := w.end(u, j)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	w.issuer.AnswerExchanges("")
	j = w.begin(u)
	w.issuer.SetAway(true)
	resp = w.end(u, j)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Contains(t, resp.body, "the issuer cannot be reached")
	assert.Contains(t, w.lastCall()["error"], "HTTP 503")
	assert.NotContains(t, w.log.String(), "secret nonsense")

	fresh := newOIDC(t, nil)
	fresh.issuer.SetAway(true)
	resp = fresh.browser().do("GET", "/console/oidc/start", "")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Empty(t, resp.Cookies())
	fresh.issuer.Register("console", "another secret", "ann@example", nil)
}

// Failed sign-ins at the issuer are rate limited like wrong passwords.
func TestFailedSignInsAtTheIssuerAreRateLimited(t *testing.T) {
	w := newOIDC(t, map[string]any{"nonce": "another"})
	u := w.browser()
	for range 10 {
		require.Equal(t, http.StatusUnauthorized, w.end(u, w.begin(u)).StatusCode)
	}
	assert.Equal(t, http.StatusTooManyRequests, w.end(u, w.begin(u)).StatusCode)
	assert.Equal(t, 10, w.issuer.Exchanges())
}

func TestConsoleWithoutAnIssuerHasNoSignInPage(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, path := range []string{"/console/oidc/start", "/console/oidc/callback?code=1&state=2"} {
		assert.Equal(t, http.StatusNotFound, b.browser().do("GET", path, "").StatusCode)
	}
}

// The secrets of a sign-in, whether it succeeds or fails, are not logged at any level.
func TestSignInSecretsAreNotLogged(t *testing.T) {
	w := newOIDC(t, nil)
	u := w.browser()
	var secrets []string
	note := func(j journey) journey {
		secrets = append(secrets, j.ticket, j.back.Get("code"), j.back.Get("state"), j.page.Get("nonce"))
		return j
	}
	require.Equal(t, http.StatusOK, w.end(u, note(w.begin(u))).StatusCode)
	u.csrf = decoded[console.SessionAnswer](t, u.do("GET", "/console/session", "")).CSRF
	secrets = append(secrets, u.cookie, u.csrf, clientSecret)
	u.call()
	u.do("POST", "/", version, csrfHeader, "wrong"+u.csrf)
	u.do("GET", "/console/"+u.cookie+"?"+u.csrf, "")
	j := note(w.begin(u))
	j.back.Del("state")
	w.end(u, j)
	w.issuer.AnswerExchanges("nonsense " + clientSecret)
	w.end(u, note(w.begin(u)))
	u.do("DELETE", "/console/session?"+u.csrf, "")
	u.call()
	u.do("POST", "/console/session", passwordOf("admin", adminPassword))
	secrets = append(secrets, u.cookie, adminPassword)
	for _, body := range []string{passwordOf(canary, canary), passwordOf("admin", canary), fmt.Sprintf(`{"token":%q}`, canary), `{"user":"` + canary, `{"` + canary + `":1}`, `{"token":"spdkgate_` + canary + `"}`} {
		u.do("POST", "/console/session", body, "X-Secret", canary)
	}
	u.do("POST", "/console/explain", `{"method":"accel_crypto_key_create","params":{"name":"n","cipher":"AES_XTS","key":"`+canary+`","key2":"`+canary+`"}}`)
	secrets = append(secrets, canary)
	resp, stream := u.watch("/console/audit")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	var entries strings.Builder
	for !strings.Contains(entries.String(), "console.audit") {
		e, ok := stream.next()
		require.True(t, ok)
		entries.WriteString(e.data)
	}
	everything := w.log.String() + entries.String() + w.scrape()
	for i, secret := range secrets {
		require.NotEmpty(t, secret)
		assert.NotContains(t, everything, secret, "secret %d", i)
	}
}
