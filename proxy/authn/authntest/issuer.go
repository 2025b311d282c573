package authntest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// An Issuer signs JWTs and serves its keys over HTTPS at /keys. It supports discovery. /moved
// redirects to /keys.
type Issuer struct {
	t   testing.TB
	URL string
	CA  []byte // in PEM

	mu       sync.Mutex
	key      jose.JSONWebKey   // the current signing key
	shown    []jose.JSONWebKey // the public keys that /keys serves
	rotation int
	fetches  int
	away     bool
	held     chan struct{} // if not nil, /keys waits until the channel is closed
	bearer   string        // if not "", the bearer token that /keys requires
	jwksURI  string        // if not "", the URI of the keys in discovery
	flow     flow
}

// NewIssuer starts an issuer with an RSA key. The issuer stops when the test ends.
func NewIssuer(t testing.TB) *Issuer {
	i := &Issuer{t: t}
	server := httptest.NewTLSServer(i.handler())
	t.Cleanup(server.Close)
	t.Cleanup(func() { i.Hold(nil) })
	i.URL = server.URL
	i.CA = encode("CERTIFICATE", server.Certificate().Raw)
	i.Rotate()
	return i
}

func (i *Issuer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		uri := i.jwksURI
		if uri == "" {
			uri = i.URL + "/keys"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": uri, "id_token_signing_alg_values_supported": []string{"RS256"},
			"authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token"})
	})
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("/token", i.token)
	mux.Handle("/moved", http.RedirectHandler("/keys", http.StatusFound))
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.fetches++
		held, away, bearer, text := i.held, i.away, i.bearer, i.jwks()
		i.mu.Unlock()
		if held != nil {
			select {
			case <-held:
			case <-r.Context().Done():
			}
		}
		switch {
		case away:
			http.Error(w, "away", http.StatusServiceUnavailable)
		case bearer != "" && r.Header.Get("Authorization") != "Bearer "+bearer:
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		default:
			_, _ = w.Write(text)
		}
	})
	return mux
}

func (i *Issuer) jwks() []byte {
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: i.shown})
	require.NoError(i.t, err)
	return text
}

// JWKS returns the content of /keys.
func (i *Issuer) JWKS() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.jwks()
}

// Rotate replaces the key with a new RSA key, and stops serving all other keys.
func (i *Issuer) Rotate() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(i.t, err)
	i.SignWith(key, jose.RS256)
}

// SignWith is like Rotate, but uses the given key, which may be of any type.
func (i *Issuer) SignWith(key crypto.Signer, algorithm jose.SignatureAlgorithm) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rotation++
	i.key = jose.JSONWebKey{Key: key, KeyID: "key-" + string(rune('a'+i.rotation)), Algorithm: string(algorithm), Use: "sig"}
	i.shown = []jose.JSONWebKey{i.key.Public()}
}

// Show adds a public key to the served keys.
func (i *Issuer) Show(key jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shown = append(i.shown, key)
}

// Key returns the current public key and its id.
func (i *Issuer) Key() (crypto.PublicKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key.Public().Key, i.key.KeyID
}

// SetAway sets whether all requests fail.
func (i *Issuer) SetAway(away bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.away = away
}

// Hold delays requests for keys until the channel is closed.
func (i *Issuer) Hold(until chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = until
}

// Want makes /keys require this bearer token.
func (i *Issuer) Want(bearer string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.bearer = bearer
}

// PointTo sets the key URI that discovery returns.
func (i *Issuer) PointTo(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.jwksURI = uri
}

// Fetches returns the number of requests for keys.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Claims returns the claims of a token for a subject, valid for an hour. more replaces claims; a
// nil value removes the claim.
func (i *Issuer) Claims(audience, subject string, more map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": []string{audience}, "sub": subject,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a signed token with the claims that Claims returns.
func (i *Issuer) Token(audience, subject string, more map[string]any) string {
	return i.Sign(i.Claims(audience, subject, more))
}

// Sign signs claims with the current key.
func (i *Issuer) Sign(claims map[string]any) string {
	text, err := json.Marshal(claims)
	require.NoError(i.t, err)
	return i.SignText(text)
}

// SignText signs any payload with the current key.
func (i *Issuer) SignText(payload []byte) string {
	i.mu.Lock()
	key := i.key
	i.mu.Unlock()
	return SignAs(i.t, payload, jose.SignatureAlgorithm(key.Algorithm), key.Key, key.KeyID)
}

// SignAs signs a payload with any key, whether or not it belongs to an issuer.
func SignAs(t testing.TB, payload []byte, algorithm jose.SignatureAlgorithm, key any, id string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	require.NoError(t, err)
	signed, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

// Unsigned returns a token with the algorithm "none".
func Unsigned(t testing.TB, claims map[string]any) string {
	text, err := json.Marshal(claims)
	require.NoError(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(`{"alg":"none"}`)) + "." + b64(text) + "."
}

// Private returns the current private key.
func (i *Issuer) Private() crypto.Signer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key.Key.(crypto.Signer)
}
