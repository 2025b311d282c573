package authn

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Keys that cannot verify a token are skipped, wherever they are in the list.
func TestKeysThatCannotVerifyAreSkipped(t *testing.T) {
	weak := weakKey(t)
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	raw := func(key any, id, use string) json.RawMessage {
		text, err := json.Marshal(jose.JSONWebKey{Key: key, KeyID: id, Use: use})
		require.NoError(t, err)
		return text
	}
	all := []json.RawMessage{
		json.RawMessage(`{"kty": "unknown"}`), raw(&strong.PublicKey, "encrypts", "enc"), raw(&weak.PublicKey, "weak", "sig"), raw([]byte("symmetric key"), "symmetric", "sig"),
		raw(&strong.PublicKey, "rsa", "sig"), raw(&strong.PublicKey, "unsaid", ""), raw(&curve.PublicKey, "ecdsa", "sig"), raw(edwards, "ed25519", "sig"),
	}
	text, err := json.Marshal(map[string]any{"keys": all})
	require.NoError(t, err)
	keys, err := parseKeys(text)
	require.NoError(t, err)
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.KeyID)
	}
	assert.Equal(t, []string{"rsa", "unsaid", "ecdsa", "ed25519"}, ids)
	text, err = json.Marshal(map[string]any{"keys": all[:4]})
	require.NoError(t, err)
	_, err = parseKeys(text)
	require.ErrorIs(t, err, errNoKeys)
	_, err = parseKeys([]byte("{"))
	require.ErrorContains(t, err, "not a JSON Web Key Set")
}

// An issuer's URL must begin with https:// and contain a host, but neither a fragment nor
// credentials.
func TestIssuerURLsMustUseHTTPS(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://i.example": true, "https://i.example:8443/realms/a?x=y": true, "https://[fd00::1]/": true,
		"": false, "i.example": false, "http://i.example": false, "https:///keys": false, "https://ann@i.example": false, "https://i.example#keys": false, "https://i.example:x": false,
	} {
		assert.Equal(t, ok, checkURL(text) == nil, text)
	}
	for text, ok := range map[string]bool{
		"https://proxy:5443" + CallbackPath: true, "http://localhost:5443" + CallbackPath: true, "http://127.0.0.1" + CallbackPath: true, "http://[::1]:5443" + CallbackPath: true,
		"http://proxy" + CallbackPath: false, "ftp://localhost" + CallbackPath: false, "https://proxy": false, "https://proxy" + CallbackPath + "?x": false, "https://proxy" + CallbackPath + "#x": false,
		"https://ann@proxy" + CallbackPath: false, "https://" + CallbackPath: false, "https://proxy:x" + CallbackPath: false, "": false,
	} {
		c := CodeFlow{ClientID: "console", RedirectURL: text}
		assert.Equal(t, ok, c.check("https://i.example") == nil, text)
	}
}

// By default, 20 failures per minute are allowed.
func TestFailureLimitHasADefault(t *testing.T) {
	retryAfter := func(o Options) time.Duration {
		now := time.Unix(0, 0)
		o.Now = func() time.Time { return now }
		b := newBasic(t, o, User{Name: "ann", Hashes: []Hash{newCountingHash("a", 1)}})
		for range 1000 {
			var slow *TooManyFailuresError
			if _, err := b.Authenticate(t.Context(), basic("ann", "x"), here); errorsAs(err, &slow) {
				return slow.RetryAfter
			}
		}
		t.Fatal("not slowed down")
		return 0
	}
	assert.Equal(t, retryAfter(Options{FailuresPerMinute: 20}), retryAfter(Options{}))
	assert.Greater(t, retryAfter(Options{}), retryAfter(Options{FailuresPerMinute: 21}))
}
