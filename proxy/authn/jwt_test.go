package authn

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

const (
	audience = "spdk-proxy"
	driver   = "system:serviceaccount:spdkcsi:controller"
)

// fresh returns Evidence with a token from a new address.
func fresh(token string) Evidence {
	addresses.Lock()
	defer addresses.Unlock()
	addresses.last = addresses.last.Next()
	return Evidence{Authorization: []string{"Bearer " + token}, Source: addresses.last}
}

var addresses = struct {
	sync.Mutex
	last netip.Addr
}{last: netip.MustParseAddr("198.51.100.0")}

// jwtUsers returns users who authenticate with tokens of the issuer "cluster".
func jwtUsers() []User {
	return []User{
		{Name: "csi", JWT: &JWTRule{Issuer: "cluster", Subject: driver, Claims: map[string]string{"/kubernetes.io/namespace": "spdkcsi"}}},
		{Name: "storage-team", JWT: &JWTRule{Issuer: "cluster", Claims: map[string]string{"sub": "", "/kubernetes.io/namespace": "storage", "mfa": "true"}}},
		{Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}},
	}
}

func inNamespace(name string) map[string]any {
	return map[string]any{"kubernetes.io": map[string]any{"namespace": name}}
}

func with(a map[string]any, name string, value any) map[string]any {
	a[name] = value
	return a
}

func newJWTAuthenticator(t testing.TB, i *authntest.Issuer, change func(*Issuer, *Options)) *Authenticator {
	issuer := Issuer{Name: "cluster", URL: i.URL, Audience: audience, Authority: string(i.CA)}
	opts := Options{FailuresPerMinute: 6000}
	if change != nil {
		change(&issuer, &opts)
	}
	opts.Issuers = append([]Issuer{issuer}, opts.Issuers...)
	users := jwtUsers()
	delete(users[1].JWT.Claims, "sub")
	a, err := New(users, opts)
	require.NoError(t, err)
	return a
}

func TestOnlyValidJWTsAuthenticate(t *testing.T) {
	i := authntest.NewIssuer(t)
	a := newJWTAuthenticator(t, i, nil)
	public, id := i.Key()
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	claims := func(more map[string]any) []byte {
		text, err := json.Marshal(i.Claims(audience, driver, more))
		require.NoError(t, err)
		return text
	}
	good := i.Token(audience, driver, inNamespace("spdkcsi"))
	part := strings.Split(good, ".")
	ago, soon := time.Now().Add(-2*time.Minute).Unix(), time.Now().Add(2*time.Minute).Unix()
	signed := func(more map[string]any) string { return i.Token(audience, driver, more) }
	ours := func() map[string]any { return inNamespace("spdkcsi") }

	for name, c := range map[string]struct {
		token, user, says string // says is part of the error sent to the client
	}{
		"token of a service account": {token: good, user: "csi"},
		"audience as a string":       {token: signed(with(ours(), "aud", audience)), user: "csi"},
		"several audiences":          {token: signed(with(ours(), "aud", []string{"x", audience})), user: "csi"},
		"expired within the skew":    {token: signed(with(ours(), "exp", time.Now().Add(-30*time.Second).Unix())), user: "csi"},
		"valid in half a minute":     {token: signed(with(ours(), "nbf", time.Now().Add(30*time.Second).Unix())), user: "csi"},
		"without nbf and iat":        {token: signed(with(with(ours(), "nbf", nil), "iat", nil)), user: "csi"},
		"claim true":                 {token: i.Token(audience, "anybody", with(inNamespace("storage"), "mfa", true)), user: "storage-team"},
		"claim with text":            {token: i.Token(audience, "anybody", with(inNamespace("storage"), "mfa", "true")), user: "storage-team"},
		"without a key id":           {token: authntest.SignAs(t, claims(ours()), jose.RS256, privateOf(i), ""), user: "csi"},

		"missing claim":                             {token: i.Token(audience, "anybody", inNamespace("storage")), says: `the subject "anybody" of the issuer cluster`},
		"false claim":                               {token: i.Token(audience, "anybody", with(inNamespace("storage"), "mfa", false)), says: "no user has its subject"},
		"a list instead of a string":                {token: i.Token(audience, "anybody", with(map[string]any{"kubernetes.io": []string{"storage"}}, "mfa", true)), says: "no user has its subject"},
		"another subject":                           {token: i.Token(audience, driver+"x", ours()), says: "no user has its subject"},
		"subject claim in a different letter case":  {token: signed(with(with(ours(), "sub", nil), "SUB", driver)), says: "no user has its subject"},
		"another namespace":                         {token: signed(inNamespace("other")), says: "no user has its subject"},
		"another audience":                          {token: i.Token("vault", driver, ours()), says: `with the audience "spdk-proxy"`},
		"no audience":                               {token: signed(with(ours(), "aud", nil)), says: "with the audience"},
		"an audience with the same prefix":          {token: i.Token(audience+"-2", driver, ours()), says: "with the audience"},
		"audience claim in a different letter case": {token: signed(with(with(ours(), "aud", nil), "AUD", audience))},
		"issuer claim in a different letter case":   {token: signed(with(with(ours(), "iss", nil), "ISS", i.URL))},
		"expired":                             {token: signed(with(ours(), "exp", ago)), says: "the token expired on "},
		"never expires":                       {token: signed(with(ours(), "exp", nil)), says: "expired"},
		"not valid yet":                       {token: signed(with(ours(), "nbf", soon)), says: "not valid yet (nbf)"},
		"issued in the future":                {token: signed(with(ours(), "iat", soon)), says: "not valid yet (iat)"},
		"nbf is not a number":                 {token: signed(with(ours(), "nbf", "x")), says: "with the audience"},
		"another issuer":                      {token: signed(with(ours(), "iss", "https://elsewhere.example"))},
		"issuer with a slash":                 {token: signed(with(ours(), "iss", i.URL+"/"))},
		"alg none":                            {token: authntest.Unsigned(t, i.Claims(audience, driver, ours()))},
		"alg none with signature":             {token: authntest.Unsigned(t, i.Claims(audience, driver, ours())) + part[2]},
		"HS256 with the public key, PEM":      {token: authntest.SignAs(t, claims(ours()), jose.HS256, asPEM, id)},
		"HS256 with the public key, DER":      {token: authntest.SignAs(t, claims(ours()), jose.HS256, der, id)},
		"HS256 with the public key's modulus": {token: authntest.SignAs(t, claims(ours()), jose.HS256, public.(*rsa.PublicKey).N.Bytes(), id)},
		"RS512 with a key for RS256":          {token: authntest.SignAs(t, claims(ours()), jose.RS512, privateOf(i), id)},
		"another key, the same id":            {token: authntest.SignAs(t, claims(ours()), jose.RS256, other, id)},
		"another key, no id":                  {token: authntest.SignAs(t, claims(ours()), jose.RS256, other, "")},
		"changed claims":                      {token: part[0] + "." + base64.RawURLEncoding.EncodeToString(claims(nil)) + "." + part[2]},
		"truncated":                           {token: good[:len(good)-4]},
		"no signature":                        {token: part[0] + "." + part[1] + "."},
		"a claim twice":                       {token: i.SignText([]byte(strings.Replace(string(claims(ours())), "{", `{"sub":"eve",`, 1)))},
		"not an object":                       {token: i.SignText([]byte(`"` + driver + `"`))},
		"not base64":                          {token: "a.b.c"},
		"not a JWT":                           {token: "abc"},
		"five parts":                          {token: good + ".a.b"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from the cache, if the result can be cached
				who, err := a.Authenticate(t.Context(), fresh(c.token))
				assert.Equal(t, c.user, who.User)
				assert.Equal(t, ByJWT, who.Method)
				if c.user != "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ErrWrongCredentials)
				var reason *RejectedError
				if assert.Equal(t, c.says != "", errorsAs(err, &reason), "%v", err) && reason != nil {
					assert.Contains(t, reason.Reason, c.says)
				}
			}
		})
	}
	who, err := a.Authenticate(t.Context(), fresh(good))
	require.NoError(t, err)
	assert.Equal(t, Identity{"csi", ByJWT, driver}, who)
	assert.LessOrEqual(t, i.Fetches(), 1, "the issuer's keys were fetched once")
}

func TestOnlyPublicKeyAlgorithmsAreAccepted(t *testing.T) {
	for _, a := range algorithmNames() {
		assert.Regexp(t, "^([RPE]S(256|384|512)|EdDSA)$", a)
	}
}

func TestJWTsSignedWithOtherKeysAreRejected(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	i := authntest.NewIssuer(t)
	i.SignWith(ec, jose.ES384)
	_, err = newJWTAuthenticator(t, i, nil).Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.NoError(t, err)
	i.SignWith(edwards, jose.EdDSA)
	_, err = newJWTAuthenticator(t, i, nil).Authenticate(t.Context(), fresh(i.Token(audience, driver, inNamespace("spdkcsi"))))
	require.NoError(t, err)

	// The proxy ignores symmetric and weak keys among the issuer's keys.
	i.Show(jose.JSONWebKey{Key: []byte("a secret that was published by mistake"), KeyID: "secret", Algorithm: "HS256"})
	weak := weakKey(t)
	i.Show(jose.JSONWebKey{Key: weak.Public(), KeyID: "weak", Algorithm: "RS256"})
	claims, err := json.Marshal(i.Claims(audience, driver, inNamespace("spdkcsi")))
	require.NoError(t, err)
	a := newJWTAuthenticator(t, i, nil)
	for _, token := range []string{
		authntest.SignAs(t, claims, jose.HS256, []byte("a secret that was published by mistake"), "secret"),
		authntest.SignAs(t, claims, jose.RS256, weak, "weak"),
	} {
		_, err = a.Authenticate(t.Context(), fresh(token))
		require.ErrorIs(t, err, ErrWrongCredentials)
	}
}

// A verified token is cached until it expires, but only for a few minutes.
func TestJWTCacheExpires(t *testing.T) {
	i := authntest.NewIssuer(t)
	now := time.Now()
	a := newJWTAuthenticator(t, i, func(_ *Issuer, o *Options) { o.Now = func() time.Time { return now } })
	short := i.Token(audience, driver, with(inNamespace("spdkcsi"), "exp", now.Add(10*time.Second).Unix()))
	long := i.Token(audience, driver, inNamespace("spdkcsi"))
	for _, token := range []string{short, long} {
		_, err := a.Authenticate(t.Context(), fresh(token))
		require.NoError(t, err)
	}
	require.Len(t, a.issuers.memory.known, 2)
	for sum, r := range a.issuers.memory.known {
		assert.NotContains(t, string(sum[:]), "eyJ")
		assert.LessOrEqual(t, r.until, now.Add(jwtRemembered))
	}
	now = now.Add(2 * time.Minute)
	_, err := a.Authenticate(t.Context(), fresh(short))
	require.ErrorContains(t, err, "expired")
	_, err = a.Authenticate(t.Context(), fresh(long))
	require.NoError(t, err)

	// A key removed by the issuer soon stops working.
	i.Rotate()
	now = now.Add(overdueAge)
	_, err = a.Authenticate(t.Context(), fresh(long))
	require.ErrorIs(t, err, ErrWrongCredentials)
}

// Malformed rules, and rules of two users that the same token could match, are rejected.
func TestConflictingJWTRulesAreRejected(t *testing.T) {
	rule := func(subject string, claims ...string) *JWTRule {
		r := &JWTRule{Issuer: "i", Subject: subject, Claims: map[string]string{}}
		for n := 0; n < len(claims); n += 2 {
			r.Claims[claims[n]] = claims[n+1]
		}
		return r
	}
	for name, c := range map[string]struct {
		a, b *JWTRule
		says string
	}{
		"different subjects":      {rule("a"), rule("b"), ""},
		"same subject":            {rule("a"), rule("a"), "could also match user a"},
		"one more claim":          {rule("a"), rule("a", "x", "1"), "could also match user a"},
		"different claims":        {rule("", "x", "1"), rule("", "y", "1"), "could also match user a"},
		"different values":        {rule("", "x", "1"), rule("", "x", "2"), ""},
		"subject and claim":       {rule("a"), rule("", "x", "1"), "could also match user a"},
		"same subject, different": {rule("a", "x", "1"), rule("a", "x", "2"), ""},
		"nothing":                 {rule("a"), rule(""), "set subject or claims"},
		"empty value":             {rule("a"), rule("", "x", ""), "may be empty"},
		"subject among claims":    {rule("a"), rule("", "sub", "b"), "set the subject with the key subject"},
		"unknown issuer":          {rule("a"), &JWTRule{Issuer: "j", Subject: "b"}, `oidc has no issuer "j"`},
	} {
		_, err := New([]User{{Name: "a", JWT: c.a}, {Name: "b", JWT: c.b}}, Options{Issuers: []Issuer{{Name: "i", URL: "https://i.example", Audience: "x"}}})
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "user b: jwt: ", name)
		require.ErrorContains(t, err, c.says, name)
	}
}

// All members of a group act as one user of the proxy. A person in two groups acts as the user
// listed first.
func TestGroupMembersShareOneUser(t *testing.T) {
	i := authntest.NewIssuer(t)
	group := func(name string) User {
		return User{Name: name, JWT: &JWTRule{Issuer: "sso", Claims: map[string]string{"groups": name}}}
	}
	a, err := New([]User{group("admins"), group("everybody")}, Options{FailuresPerMinute: 6000, Issuers: []Issuer{{Name: "sso", URL: i.URL, Audience: audience, Authority: string(i.CA)}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		groups any
		user   string
	}{
		"one":          {[]any{"lab", "everybody"}, "everybody"},
		"two":          {[]any{"everybody", "admins"}, "admins"},
		"text":         {"everybody", "everybody"},
		"longer names": {[]any{"everybody-else", "admins "}, ""},
		"no texts":     {[]any{[]any{"admins"}, map[string]any{"admins": "admins"}, 1, nil}, ""},
		"none":         {[]any{}, ""},
	} {
		who, err := a.Authenticate(t.Context(), fresh(i.Token(audience, "ann", map[string]any{"groups": c.groups})))
		if c.user == "" {
			require.ErrorContains(t, err, "no user has its subject and claims", name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, []string{c.user, "ann"}, []string{who.User, who.Credential}, name)
	}
}

func TestJWTClaimIsFoundByItsPath(t *testing.T) {
	var claims map[string]any
	require.NoError(t, json.Unmarshal([]byte(`{"a":"x","b":true,"n":1,"l":["x"],"o":{"p/q":{"~":"y"},"":"z"},"https://r":"u"}`), &claims))
	for path, want := range map[string]string{
		"a": "x", "/a": "x", "b": "true", "n": "", "l": "x", "o": "", "/o/p~1q/~0": "y", "/o/": "z", "https://r": "u", "/l/0": "", "/a/b": "", "none": "", "/": "",
	} {
		for _, value := range []string{"x", "true", "1", "y", "z", "u", ""} {
			assert.Equal(t, value == want && want != "", has(claimAt(claims, path), value), "%s: %s", path, value)
		}
	}
}
