package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

const redirectURL = "https://proxy.example" + CallbackPath

// A browser signs in at an issuer as the user csi.
type browser struct {
	t      *testing.T
	issuer *authntest.Issuer
	a      *Authenticator
	now    time.Time
}

func newBrowser(t *testing.T, secret string) *browser {
	b := &browser{t: t, issuer: authntest.NewIssuer(t), now: time.Now()}
	b.issuer.Register("console", secret, driver, inNamespace("spdkcsi"))
	b.a = newJWTAuthenticator(t, b.issuer, func(i *Issuer, o *Options) {
		i.CodeFlow = &CodeFlow{ClientID: "console", ClientSecret: secret, RedirectURL: redirectURL, Scopes: []string{"groups"}}
		o.Now = func() time.Time { return b.now }
	})
	return b
}

// visit follows a link to the issuer's page, and returns the code that the issuer sends back.
func (b *browser) visit(page string) string {
	pool := x509.NewCertPool()
	require.True(b.t, pool.AppendCertsFromPEM(b.issuer.CA))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := client.Get(page)
	require.NoError(b.t, err)
	defer r.Body.Close()
	require.Equal(b.t, http.StatusFound, r.StatusCode)
	back, err := r.Location()
	require.NoError(b.t, err)
	return back.Query().Get("code")
}

func (b *browser) page() (string, error) {
	return b.a.IssuerPage(b.t.Context(), "state", "nonce", "verifier")
}

func (b *browser) signIn(change func(*SignIn)) (Identity, error) {
	page, err := b.page()
	require.NoError(b.t, err)
	in := SignIn{Method: ByCode, Code: b.visit(page), Nonce: "nonce", Verifier: "verifier"}
	if change != nil {
		change(&in)
	}
	who, _, err := b.a.SignIn(b.t.Context(), in, Evidence{Source: netip.MustParseAddr("192.0.2.1")})
	return who, err
}

func TestCodeIsExchangedForASession(t *testing.T) {
	for _, secret := range []string{"", "s3cr+t"} {
		b := newBrowser(t, secret)
		assert.True(t, b.a.TakesCodes())
		assert.True(t, b.a.IsIssuer(b.issuer.URL))
		assert.False(t, b.a.IsIssuer(b.issuer.URL+"/x"))
		page, err := b.page()
		require.NoError(t, err)
		u, err := url.Parse(page)
		require.NoError(t, err)
		for name, want := range map[string]string{"client_id": "console", "redirect_uri": redirectURL, "state": "state", "nonce": "nonce", "scope": "openid groups"} {
			assert.Equal(t, want, u.Query().Get(name), name)
		}
		who, err := b.signIn(nil)
		require.NoError(t, err, "secret %q", secret)
		assert.Equal(t, Identity{User: "csi", Method: ByCode, Credential: driver}, who)
	}
}

// A code is accepted only from the browser that began the sign-in.
func TestCodeFromAnotherSignInIsRefused(t *testing.T) {
	b := newBrowser(t, "s3cret")
	for name, c := range map[string]struct {
		change func(*SignIn)
		says   string
	}{
		"another nonce":    {func(in *SignIn) { in.Nonce = "other" }, "belongs to another sign-in"},
		"no nonce":         {func(in *SignIn) { in.Nonce = "" }, "belongs to another sign-in"},
		"another verifier": {func(in *SignIn) { in.Verifier = "other" }, "invalid_grant"},
		"another code":     {func(in *SignIn) { in.Code = "other" }, "invalid_grant"},
	} {
		_, err := b.signIn(c.change)
		var rejected *RejectedError
		require.ErrorAs(t, err, &rejected, name)
		assert.Contains(t, rejected.Reason, c.says, name)
	}
	for name, claims := range map[string]map[string]any{
		"issued for another client":  {"azp": "other"},
		"belongs to another sign-in": {"nonce": nil},
	} {
		b.issuer.Register("console", "s3cret", driver, with(inNamespace("spdkcsi"), "azp", "console"))
		_, err := b.signIn(nil)
		require.NoError(t, err)
		for claim, value := range claims {
			b.issuer.Register("console", "s3cret", driver, with(inNamespace("spdkcsi"), claim, value))
		}
		_, err = b.signIn(nil)
		require.ErrorIs(t, err, ErrWrongCredentials, name)
		assert.ErrorContains(t, err, name)
	}
	b.issuer.Register("console", "s3cret", driver+"x", inNamespace("spdkcsi"))
	who, err := b.signIn(nil)
	require.ErrorIs(t, err, ErrWrongCredentials)
	assert.ErrorContains(t, err, "no user has its subject")
	assert.Empty(t, who.User)
	b.issuer.Register("console", "another secret", driver, nil)
	_, err = b.signIn(nil)
	require.ErrorIs(t, err, ErrWrongCredentials)
	assert.ErrorContains(t, err, "compare oidc.console with the issuer's registration")
}

// The browser can influence the issuer's response, so the proxy does not repeat any part of it.
func TestFailedExchangesDoNotRepeatTheResponse(t *testing.T) {
	b := newBrowser(t, "s3cret")
	b.issuer.AnswerExchanges(`{"error": "access_denied", "error_description": "canary"}`)
	_, err := b.signIn(nil)
	require.ErrorIs(t, err, ErrWrongCredentials)
	assert.NotContains(t, err.Error(), "canary")
	b.issuer.AnswerExchanges("canary")
	_, err = b.signIn(nil)
	require.ErrorIs(t, err, ErrWrongCredentials)
	assert.NotContains(t, err.Error(), "canary")
	b.issuer.AnswerExchanges("")

	_, err = b.signIn(func(*SignIn) { b.issuer.SetAway(true) })
	require.ErrorIs(t, err, ErrCannotTell)
	require.NotErrorIs(t, err, ErrWrongCredentials)
	b.issuer.SetAway(false)
	_, err = b.signIn(nil)
	require.NoError(t, err)
}

func TestIssuerRefusalsStateWhatToDo(t *testing.T) {
	for code, says := range map[string]string{
		"access_denied": "ask its administrator for access", "unauthorized_client": "compare oidc.console", "invalid_client": "compare oidc.console",
		"server_error": "(server_error): sign in again", "a\nb": "(unknown_error)", "": "(unknown_error)",
	} {
		err := IssuerRefused(code)
		require.ErrorIs(t, err, ErrWrongCredentials)
		assert.ErrorContains(t, err, says)
	}
	canary := errors.New("canary")
	assert.ErrorIs(t, withoutBody(&url.Error{Op: "Post", URL: "https://issuer.example", Err: canary}), canary)
	assert.NotContains(t, withoutBody(canary).Error(), "canary")
	assert.ErrorIs(t, exchangeError(canary), ErrCannotTell)
}

// Anyone can make the proxy query the issuer, so the proxy waits after a failure before it queries
// the issuer again.
func TestAddressesOfIssuerPagesAreCached(t *testing.T) {
	asked, answer := 0, map[string]any{}
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	answer["issuer"], answer["authorization_endpoint"], answer["token_endpoint"] = server.URL, server.URL+"/a", server.URL+"/t"
	now := time.Now()
	a, err := New(jwtUsers()[:1], Options{Now: func() time.Time { return now }, Issuers: []Issuer{{
		Name: "cluster", URL: server.URL, Audience: audience,
		Authority: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		CodeFlow:  &CodeFlow{ClientID: "console", RedirectURL: redirectURL},
	}}})
	require.NoError(t, err)
	ask := func(want int) error {
		t.Helper()
		page, err := a.IssuerPage(t.Context(), "state", "nonce", "verifier")
		assert.Equal(t, want, asked)
		if err == nil {
			assert.Contains(t, page, server.URL+"/a?")
		}
		return err
	}
	status = http.StatusServiceUnavailable
	require.ErrorIs(t, ask(1), ErrCannotTell)
	require.ErrorIs(t, ask(1), ErrCannotTell)
	now = now.Add(fetchInterval - time.Nanosecond)
	require.ErrorIs(t, ask(1), ErrCannotTell)
	status = http.StatusOK
	now = now.Add(time.Nanosecond)
	require.NoError(t, ask(2), "the pause after a failure has ended")
	now = now.Add(endpointsAge - time.Nanosecond)
	require.NoError(t, ask(2))
	now = now.Add(time.Nanosecond)
	require.NoError(t, ask(3), "the cached addresses have expired")

	now = now.Add(endpointsAge)
	answer["token_endpoint"] = "http://" + server.Listener.Addr().String()
	require.ErrorIs(t, ask(4), ErrCannotTell, "the address is not https")

	now = now.Add(fetchInterval)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.IssuerPage(ctx, "state", "nonce", "verifier")
	require.ErrorIs(t, err, ErrCannotTell)
}
