package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// A CodeFlow lets people sign in to the console at an issuer's page, by the authorization code flow
// of OpenID Connect with PKCE. It contains the proxy's registration with the issuer.
type CodeFlow struct {
	ClientID     string
	ClientSecret string // empty for a public client
	RedirectURL  string // this proxy's callback URL, as browsers see it
	Scopes       []string
}

// CallbackPath is the path of every CodeFlow's RedirectURL.
const CallbackPath = "/console/oidc/callback"

func (c *CodeFlow) check(issuer string) error {
	var wrong []error
	if c.ClientID == "" {
		wrong = append(wrong, errors.New("console.client_id is missing: set it to the id with which this proxy is registered at the issuer"))
	}
	if checkURL(issuer) != nil {
		wrong = append(wrong, errors.New("console requires an issuer that is an https:// URL, where the addresses of its pages are discovered"))
	}
	u, err := url.Parse(c.RedirectURL)
	if err != nil || u.Path != CallbackPath || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Host == "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		wrong = append(wrong, errors.New("console.redirect_url must be https://HOST[:PORT]"+CallbackPath+", the address of this proxy as browsers reach it"))
	}
	return errors.Join(wrong...)
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// A codeFlow is an issuer's CodeFlow with the addresses of the issuer's pages.
type codeFlow struct {
	CodeFlow
	issuer *issuer

	flights singleflight.Group
	mu      sync.Mutex
	known   *oauth2.Endpoint
	tried   time.Time // when the addresses were last requested
	failure error     // error of the last request
}

// endpointsAge is how long the addresses of the issuer's pages are reused.
const endpointsAge = 10 * time.Minute

// endpoint returns the addresses of the issuer's pages. It queries the issuer at most once every
// fetchInterval, because anyone can trigger a query.
func (f *codeFlow) endpoint(ctx context.Context) (oauth2.Endpoint, error) {
	f.mu.Lock()
	known, failure, age := f.known, f.failure, f.issuer.now().Sub(f.tried)
	f.mu.Unlock()
	switch {
	case known != nil && age < endpointsAge:
		return *known, nil
	case failure != nil && age < fetchInterval:
		return oauth2.Endpoint{}, failure
	}
	done := f.flights.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		found, err := f.discover(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.known, f.failure, f.tried = found, err, f.issuer.now()
		return found, err
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return oauth2.Endpoint{}, r.Err
		}
		return *r.Val.(*oauth2.Endpoint), nil
	case <-ctx.Done():
		return oauth2.Endpoint{}, fmt.Errorf("%w: %w", ErrCannotTell, ctx.Err())
	}
}

func (f *codeFlow) discover(ctx context.Context) (*oauth2.Endpoint, error) {
	client, err := f.issuer.source.client()
	if err != nil {
		return nil, err
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), f.issuer.url)
	if err != nil {
		return nil, fmt.Errorf("%w: discover %s: %w", ErrCannotTell, f.issuer.url, err)
	}
	var document struct {
		Authorization string   `json:"authorization_endpoint"`
		Token         string   `json:"token_endpoint"`
		Methods       []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := errors.Join(provider.Claims(&document), checkURL(document.Authorization), checkURL(document.Token)); err != nil {
		return nil, fmt.Errorf("%w: discover %s: authorization_endpoint and token_endpoint: %w", ErrCannotTell, f.issuer.url, err)
	}
	found := &oauth2.Endpoint{AuthURL: document.Authorization, TokenURL: document.Token, AuthStyle: oauth2.AuthStyleInHeader}
	if f.ClientSecret == "" || len(document.Methods) > 0 && !slices.Contains(document.Methods, "client_secret_basic") {
		found.AuthStyle = oauth2.AuthStyleInParams
	}
	return found, nil
}

func (f *codeFlow) client(at oauth2.Endpoint) *oauth2.Config {
	return &oauth2.Config{
		ClientID: f.ClientID, ClientSecret: f.ClientSecret, RedirectURL: f.RedirectURL, Endpoint: at, Scopes: append([]string{oidc.ScopeOpenID}, f.Scopes...),
	}
}

// TakesCodes reports whether people can sign in at an issuer's page.
func (a *Authenticator) TakesCodes() bool { return a.issuers.flow != nil }

// IssuerPage returns the URL of the issuer's sign-in page. The issuer includes state when it sends
// the browser back, and nonce in the token. The caller must later pass verifier to SignIn.
func (a *Authenticator) IssuerPage(ctx context.Context, state, nonce, verifier string) (string, error) {
	f := a.issuers.flow
	at, err := f.endpoint(ctx)
	if err != nil {
		return "", err
	}
	return f.client(at).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// IsIssuer reports whether a URL identifies the issuer that provides the sign-in page.
func (a *Authenticator) IsIssuer(issuerURL string) bool {
	return a.issuers.flow.issuer.url == issuerURL
}

// signInByCode exchanges a code, which the browser received at the issuer's page, for a token. An
// attempt counts as a failure until it succeeds, because each attempt causes a request to the
// issuer.
func (a *Authenticator) signInByCode(ctx context.Context, in SignIn, e Evidence) (Binding, error) {
	b := Binding{who: Identity{Method: ByCode}}
	f := a.issuers.flow
	if f == nil {
		return b, rejected("this proxy has no issuer for the console: sign in with a password or a token")
	}
	if wait := a.limiter.take(e.Source, string(ByCode)); wait > 0 {
		return b, &TooManyFailuresError{RetryAfter: wait}
	}
	claims, err := f.exchange(ctx, in)
	if err != nil {
		return b, err
	}
	b.who.Credential, _ = claims["sub"].(string)
	if b.who.User, err = f.issuer.userOf(claims); err != nil {
		return b, err
	}
	a.limiter.refund(e.Source, string(ByCode))
	return a.issuers.bindingOf(b.who, f.issuer), nil
}

// exchange exchanges a code for a token at the issuer, and returns the token's claims.
func (f *codeFlow) exchange(ctx context.Context, in SignIn) (map[string]any, error) {
	at, err := f.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	client, err := f.issuer.source.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	given, err := f.client(at).Exchange(oidc.ClientContext(ctx, client), in.Code, oauth2.VerifierOption(in.Verifier))
	if err != nil {
		return nil, exchangeError(err)
	}
	text, _ := given.Extra("id_token").(string)
	jws, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil {
		return nil, rejected("the issuer's response contains no ID token with a signature that this proxy accepts")
	}
	claims, _, err := f.issuer.verify(ctx, text, jws, f.ClientID)
	if err != nil {
		return nil, err
	}
	nonce, _ := claims["nonce"].(string)
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(in.Nonce)) != 1 {
		return nil, rejected("the issuer's token belongs to another sign-in: sign in again")
	}
	if party := claims["azp"]; party != nil && party != f.ClientID {
		return nil, rejected("the issuer's token was issued for another client: sign in again")
	}
	return claims, nil
}

var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// exchangeError returns the reason why the issuer did not issue a token. The error contains only
// the status and error code of the issuer's response, because other parts of the response could
// quote secrets.
func exchangeError(err error) error {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return fmt.Errorf("%w: fetch a token: %w", ErrCannotTell, withoutBody(err))
	}
	if answer.Response != nil && answer.Response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%w: fetch a token: HTTP %s", ErrCannotTell, answer.Response.Status)
	}
	return IssuerRefused(answer.ErrorCode)
}

// withoutBody replaces an oauth2 error that may quote the issuer's response. It returns network
// errors unchanged.
func withoutBody(err error) error {
	var network *url.Error
	if errors.As(err, &network) {
		return network
	}
	return errors.New("the issuer's response is not a token")
}

// IssuerRefused returns the error for a sign-in that the issuer refused with an OAuth error code.
func IssuerRefused(code string) error {
	if !errorCode.MatchString(code) {
		code = "unknown_error"
	}
	switch {
	case code == "access_denied":
		return rejected("the issuer refused the sign-in (access_denied): sign in there as another user, or ask its administrator for access")
	case strings.HasSuffix(code, "_client"):
		return rejected("the issuer refused this proxy (%s): ask the administrator of this proxy to compare oidc.console with the issuer's registration", code)
	}
	return rejected("the issuer refused the sign-in (%s): sign in again", code)
}
