package authn

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

func privateOf(i *authntest.Issuer) crypto.Signer { return i.Private() }

func weakKey(t *testing.T) *rsa.PrivateKey {
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	return key
}

func errorsAs[T error](err error, target *T) bool { return errors.As(err, target) }

// While an issuer is unavailable, its users get ErrCannotTell, and the proxy rarely retries. Other
// users are not affected.
func TestUnavailableIssuerDoesNotCountAsAFailedLogin(t *testing.T) {
	i := authntest.NewIssuer(t)
	i.SetAway(true)
	now := time.Now()
	a := newJWTAuthenticator(t, i, func(_ *Issuer, o *Options) { o.Now = func() time.Time { return now } })
	token := i.Token(audience, driver, inNamespace("spdkcsi"))
	for range 50 {
		who, err := a.Authenticate(t.Context(), fresh(token))
		require.ErrorIs(t, err, ErrCannotTell)
		require.NotErrorIs(t, err, ErrWrongCredentials)
		assert.Empty(t, who.User)
	}
	assert.Zero(t, i.Fetches(), "discovery failed, so no keys were requested")
	_, err := a.Authenticate(t.Context(), Evidence{Authorization: []string{basic("ann", "right")}, Source: here})
	require.NoError(t, err)

	i.SetAway(false)
	_, err = a.Authenticate(t.Context(), fresh(token))
	require.ErrorIs(t, err, ErrCannotTell, "the proxy waits before the next attempt")
	now = now.Add(fetchInterval)
	_, err = a.Authenticate(t.Context(), fresh(token))
	require.NoError(t, err)

	// Once the keys are known, tokens are accepted even if the issuer is unavailable for a day.
	i.SetAway(true)
	for range 3 {
		now = now.Add(7 * time.Hour)
		token = i.Token(audience, driver, with(with(inNamespace("spdkcsi"), "exp", now.Add(time.Hour).Unix()), "nbf", now.Unix()))
		_, err = a.Authenticate(t.Context(), fresh(token))
		require.NoError(t, err)
	}
	now = now.Add(7 * time.Hour)
	token = i.Token(audience, driver, with(inNamespace("spdkcsi"), "exp", now.Add(time.Hour).Unix()))
	require.Eventually(t, func() bool { // a refresh may be in progress
		_, err = a.Authenticate(t.Context(), fresh(token))
		return errors.Is(err, ErrCannotTell)
	}, time.Minute, time.Millisecond)
}

// When a fetch fails, the error contains the cause, which is logged.
func TestFetchErrorsStateTheCause(t *testing.T) {
	i := authntest.NewIssuer(t)
	// without the authority's certificate, the fetch fails
	_, err := keySource{jwksURL: i.URL + "/keys"}.fetch(t.Context())
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
}

// A login that waits for its issuer does not delay other logins, and ends when its context ends.
func TestSlowIssuerDelaysOnlyItsUsers(t *testing.T) {
	slow, quick := authntest.NewIssuer(t), authntest.NewIssuer(t)
	held := make(chan struct{})
	slow.Hold(held)
	users := []User{
		{Name: "slow", JWT: &JWTRule{Issuer: "slow", Subject: "s"}}, {Name: "quick", JWT: &JWTRule{Issuer: "quick", Subject: "q"}},
		{Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}},
	}
	a, err := New(users, Options{Issuers: []Issuer{
		{Name: "slow", URL: slow.URL, Audience: audience, JWKSURL: slow.URL + "/keys", Authority: string(slow.CA)},
		{Name: "quick", URL: quick.URL, Audience: audience, Authority: string(quick.CA)},
	}})
	require.NoError(t, err)
	waiting := make(chan error)
	go func() {
		_, err := a.Authenticate(context.Background(), fresh(slow.Token(audience, "s", nil)))
		waiting <- err
	}()
	require.Eventually(t, func() bool { return slow.Fetches() == 1 }, time.Minute, time.Millisecond)

	for range 2 {
		_, err = a.Authenticate(t.Context(), fresh(quick.Token(audience, "q", nil)))
		require.NoError(t, err)
		_, err = a.Authenticate(t.Context(), Evidence{Authorization: []string{basic("ann", "right")}, Source: here})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.Authenticate(ctx, fresh(slow.Token(audience, "s", nil)))
	require.ErrorIs(t, err, ErrCannotTell)

	close(held)
	require.NoError(t, <-waiting)
	assert.Equal(t, 1, slow.Fetches())
}

// Clients can invent key ids. Invented ids must neither cause many requests to the issuer nor
// prevent the proxy from finding a new key.
func TestUnknownKeysAreFetchedRarely(t *testing.T) {
	i := authntest.NewIssuer(t)
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	a := newJWTAuthenticator(t, i, func(_ *Issuer, o *Options) { o.Now = clock })
	_, err := a.Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.NoError(t, err)
	require.Equal(t, 1, i.Fetches())

	claims, err := json.Marshal(i.Claims(audience, driver, inNamespace("spdkcsi")))
	require.NoError(t, err)
	flood := func() {
		var floods sync.WaitGroup
		for n := range 8 {
			floods.Go(func() {
				for m := range 8 {
					token := authntest.SignAs(t, claims, jose.RS256, privateOf(i), fmt.Sprint("made up ", n, " ", m))
					_, err := a.Authenticate(context.Background(), fresh(token))
					assert.Error(t, err)
					assert.NotErrorIs(t, err, ErrCannotTell)
				}
			})
		}
		floods.Wait()
	}
	flood()
	assert.Equal(t, 1, i.Fetches(), "the keys were fetched recently")
	pass(fetchInterval)
	flood()
	assert.Equal(t, 2, i.Fetches())

	i.Rotate()
	next := i.Token(audience, driver, inNamespace("spdkcsi"))
	_, err = a.Authenticate(t.Context(), fresh(next))
	require.ErrorIs(t, err, ErrWrongCredentials, "issuers publish a key before they use it")
	pass(fetchInterval)
	_, err = a.Authenticate(t.Context(), fresh(next))
	require.NoError(t, err, "a new key is found")
	assert.Equal(t, 3, i.Fetches())
}

func TestKeysAreReadFromAFileOrDiscovered(t *testing.T) {
	i := authntest.NewIssuer(t)
	dir := t.TempDir()
	bearerFile := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(bearerFile, []byte("old\n"), 0o600))
	i.Want("new")
	now := time.Now()
	clock := func() time.Time { return now }
	fetched := newJWTAuthenticator(t, i, func(c *Issuer, o *Options) {
		c.JWKSURL, c.BearerFile, o.Now = i.URL+"/keys", bearerFile, clock
	})
	token := i.Token(audience, driver, inNamespace("spdkcsi"))
	_, err := fetched.Authenticate(t.Context(), fresh(token))
	require.ErrorIs(t, err, ErrCannotTell)
	require.ErrorContains(t, err, "401 Unauthorized")
	require.NoError(t, os.WriteFile(bearerFile, []byte("new\n"), 0o600))
	now = now.Add(fetchInterval)
	_, err = fetched.Authenticate(t.Context(), fresh(token))
	require.NoError(t, err, "the file is read again")

	asked := i.Fetches()
	offline := newJWTAuthenticator(t, i, func(c *Issuer, _ *Options) { c.Authority, c.JWKS = "", i.JWKS() })
	_, err = offline.Authenticate(t.Context(), fresh(token))
	require.NoError(t, err)
	assert.Equal(t, asked, i.Fetches())
	i.Rotate()
	_, err = offline.Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.ErrorIs(t, err, ErrWrongCredentials)

	i.Want("")
	stranger := newJWTAuthenticator(t, i, func(c *Issuer, _ *Options) { c.Authority = string(authntest.NewAuthority(t, "x").PEM()) })
	_, err = stranger.Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.ErrorIs(t, err, ErrCannotTell, "another server at the issuer's address")

	moved := newJWTAuthenticator(t, i, func(c *Issuer, _ *Options) { c.JWKSURL = i.URL + "/moved" })
	_, err = moved.Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.ErrorIs(t, err, ErrCannotTell, "keys are read only from the configured address")
	require.ErrorContains(t, err, "302 Found")

	i.PointTo("http://" + strings.TrimPrefix(i.URL, "https://") + "/keys")
	astray := newJWTAuthenticator(t, i, nil)
	_, err = astray.Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.ErrorIs(t, err, ErrCannotTell)
	require.ErrorContains(t, err, "jwks_uri must be https://")
}

// A reload keeps the keys of issuers with unchanged configuration, so that it does not depend on
// the network. It drops the keys of all other issuers.
func TestReloadKeepsIssuerKeys(t *testing.T) {
	i := authntest.NewIssuer(t)
	first := newJWTAuthenticator(t, i, nil)
	token := i.Token(audience, driver, inNamespace("spdkcsi"))
	_, err := first.Authenticate(t.Context(), fresh(token))
	require.NoError(t, err)
	i.SetAway(true)
	second := newJWTAuthenticator(t, i, func(_ *Issuer, o *Options) { o.Former = first })
	assert.Empty(t, second.issuers.memory.known)
	_, err = second.Authenticate(t.Context(), fresh(token))
	require.NoError(t, err)
	third := newJWTAuthenticator(t, i, func(c *Issuer, o *Options) { o.Former, c.JWKSURL = first, i.URL+"/keys" })
	_, err = third.Authenticate(t.Context(), fresh(token))
	require.ErrorIs(t, err, ErrCannotTell)
}

// Two clusters may have the same issuer URL. A token is valid only for users of the cluster that
// issued it. While one cluster is unavailable, a rejection based on the other cluster's keys is not
// final.
func TestIssuersWithTheSameURLAreDistinguished(t *testing.T) {
	one, two := authntest.NewIssuer(t), authntest.NewIssuer(t)
	const url = "https://kubernetes.default.svc"
	now := time.Now()
	a, err := New([]User{{Name: "csi-1", JWT: &JWTRule{Issuer: "one", Subject: "s"}}, {Name: "csi-2", JWT: &JWTRule{Issuer: "two", Subject: "s"}}}, Options{
		Now: func() time.Time { return now },
		Issuers: []Issuer{
			{Name: "one", URL: url, Audience: audience, JWKSURL: one.URL + "/keys", Authority: string(one.CA)},
			{Name: "two", URL: url, Audience: audience, JWKSURL: two.URL + "/keys", Authority: string(two.CA)},
		},
	})
	require.NoError(t, err)
	iss := map[string]any{"iss": url}
	for user, i := range map[string]*authntest.Issuer{"csi-1": one, "csi-2": two} {
		who, err := a.Authenticate(t.Context(), fresh(i.Token(audience, "s", iss)))
		require.NoError(t, err)
		assert.Equal(t, user, who.User)
	}
	two.Rotate()
	two.SetAway(true)
	now = now.Add(fetchInterval)
	_, err = a.Authenticate(t.Context(), fresh(two.Token(audience, "s", iss)))
	require.ErrorIs(t, err, ErrCannotTell)
}

func TestInvalidIssuersAreRejected(t *testing.T) {
	jwks := authntest.NewIssuer(t).JWKS()
	for says, i := range map[string]Issuer{
		"issuer is missing":                           {Name: "a", Audience: "x", JWKS: jwks},
		"audience is missing":                         {URL: "https://i.example"},
		"set jwks_url or jwks_file":                   {URL: "http://i.example", Audience: "x"},
		"jwks_url must be https://":                   {URL: "https://i.example", Audience: "x", JWKSURL: "http://i.example/keys"},
		"bearer_file requires jwks_url":               {URL: "https://i.example", Audience: "x", BearerFile: "/x"},
		"jwks_file cannot be combined with jwks_url":  {URL: "https://i.example", Audience: "x", JWKS: jwks, JWKSURL: "https://i.example"},
		"jwks_file: not a JSON Web Key Set":           {URL: "https://i.example", Audience: "x", JWKS: []byte("x")},
		"jwks_file: no key can verify":                {URL: "https://i.example", Audience: "x", JWKS: []byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)},
		"ca_file contains no PEM-encoded certificate": {URL: "https://i.example", Audience: "x", Authority: "x"},
	} {
		_, err := New([]User{{Name: "a", Hashes: []Hash{newCountingHash("a", 1)}}}, Options{Issuers: []Issuer{i}})
		require.ErrorContains(t, err, says)
	}
	for _, i := range []Issuer{{JWKSURL: "https://i.example"}, {Authority: "x"}, {BearerFile: "/x"}} {
		i.URL, i.Audience, i.JWKS = "https://i.example", "x", jwks
		_, err := New(nil, Options{Issuers: []Issuer{i}})
		require.ErrorContains(t, err, "jwks_file cannot be combined with")
	}
	twice := Issuer{URL: "https://i.example", Audience: "x"}
	_, err := New([]User{{Name: "a", Hashes: []Hash{newCountingHash("a", 1)}}}, Options{Issuers: []Issuer{twice, twice}})
	require.ErrorContains(t, err, "is listed twice")
}

func BenchmarkAuthenticateJWT(b *testing.B) {
	i := authntest.NewIssuer(b)
	a := newJWTAuthenticator(b, i, nil)
	e := fresh(i.Token(audience, driver, inNamespace("spdkcsi")))
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			_, _ = a.Authenticate(b.Context(), e)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			clear(a.issuers.memory.known)
			_, _ = a.Authenticate(b.Context(), e)
		}
	})
}
