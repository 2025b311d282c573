package authn

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func bearer(token string) Evidence {
	return Evidence{Authorization: []string{"Bearer " + token}, Source: here}
}

func TestTokensMatchTheirHash(t *testing.T) {
	seen := map[string]bool{}
	letters := map[rune]bool{}
	for range 200 {
		token := NewToken()
		assert.Regexp(t, regexp.MustCompile(`^spdkgate_[0-9A-Za-z]{46}$`), token, "secret scanners are configured with this pattern")
		assert.True(t, isComplete(token))
		assert.False(t, seen[token])
		seen[token] = true
		for _, r := range token[len(TokenPrefix):] {
			letters[r] = true
		}
	}
	assert.Len(t, letters, 62)

	token := NewToken()
	for name, broken := range map[string]string{
		"cut": token[:len(token)-1], "longer": token + "a", "prefix only": TokenPrefix, "other prefix": "spdkgates" + token[len(TokenPrefix):],
		"two letters swapped": TokenPrefix + swapped(token[len(TokenPrefix):]),
	} {
		assert.False(t, isComplete(broken), name)
	}
}

// swapped returns s with its first pair of differing adjacent letters exchanged.
func swapped(s string) string {
	b := []byte(s)
	for i := range len(b) - 1 {
		if b[i] != b[i+1] {
			b[i], b[i+1] = b[i+1], b[i]
			break
		}
	}
	return string(b)
}

func TestTokenHashesAreParsed(t *testing.T) {
	token := NewToken()
	until := time.Date(2027, 1, 31, 12, 0, 0, 999, time.FixedZone("", 3600))
	for _, h := range []TokenHash{HashToken(token, time.Time{}), HashToken(token, until)} {
		line := h.String()
		assert.NotContains(t, line, token[len(TokenPrefix):])
		again, err := ParseTokenHash(line + "  # of the backup")
		require.NoError(t, err)
		assert.Equal(t, h, again)
		assert.Contains(t, line, h.ID())
		assert.Len(t, h.ID(), 8, "existing audit logs identify tokens by 8 characters")
	}
	assert.Contains(t, HashToken(token, until).String(), " not_after=2027-01-31T11:00:00Z")

	h := HashToken("x", time.Time{}).String()
	for text, says := range map[string]string{
		"":                              "new-token",
		"hunter2":                       "new-token",
		h[:len(h)-2]:                    "new-token",
		h + "00":                        "new-token",
		strings.ToUpper(h):              "new-token",
		"sha1:" + h[7:]:                 "new-token",
		h + " not_after=2027-01-31":     "new-token",
		h + " forever":                  "new-token",
		h + " not_after= x":             "new-token",
		token:                           "this is a token, not its hash",
		"sha256:" + token:               "this is a token, not its hash",
		h + " not_after=" + h + " more": "new-token",
	} {
		_, err := ParseTokenHash(text)
		require.ErrorContains(t, err, says, text)
		assert.NotContains(t, err.Error(), token)
		assert.NotContains(t, err.Error(), "hunter2")
	}

	list, err := ParseTokenHashes("# tokens of the backup\n\n" + h + "\r\n" + HashToken("y", until).String() + " # new")
	require.NoError(t, err)
	assert.Len(t, list, 2)
	_, err = ParseTokenHashes(h + "\n\nhunter2\n" + token)
	require.ErrorContains(t, err, "line 3: ")
	require.ErrorContains(t, err, "line 4: this is a token, not its hash")
	list, err = ParseTokenHashes("# none\n")
	require.NoError(t, err, "a file without hashes is valid")
	assert.Empty(t, list)
}

func TestTokensIdentifyUsers(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	old, next, third := NewToken(), NewToken(), NewToken()
	a, err := New([]User{
		{Name: "backup", Tokens: []TokenHash{HashToken(old, now.Add(time.Hour)), HashToken(next, time.Time{})}},
		{Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}},
	}, Options{FailuresPerMinute: 6000, Now: func() time.Time { return now }})
	require.NoError(t, err)
	assert.True(t, a.TakesBearer())

	for _, token := range []string{old, next} {
		who, err := a.Authenticate(t.Context(), bearer(token))
		require.NoError(t, err)
		assert.Equal(t, Identity{"backup", ByToken, HashToken(token, now).ID()}, who)
	}
	var rejected *RejectedError
	for _, token := range []string{third, "some.other.jwt", "x"} {
		who, err := a.Authenticate(t.Context(), bearer(token))
		require.ErrorIs(t, err, ErrWrongCredentials)
		require.NotErrorAs(t, err, &rejected)
		assert.Empty(t, who.User)
	}
	_, err = a.Authenticate(t.Context(), bearer(old[:20]))
	require.ErrorAs(t, err, &rejected)
	assert.Contains(t, rejected.Reason, "incomplete or mistyped")

	now = now.Add(time.Hour)
	who, err := a.Authenticate(t.Context(), bearer(old))
	require.ErrorAs(t, err, &rejected)
	assert.Contains(t, rejected.Reason, "expired on 2027-01-01T01:00:00Z")
	assert.Equal(t, "backup", who.User, "the log has the user's name")
	_, err = a.Authenticate(t.Context(), bearer(next))
	require.NoError(t, err)

	// A token is not accepted as a password, and a password is not accepted as a token.
	for _, password := range []string{"", next, old} {
		who, err = a.Authenticate(t.Context(), Evidence{Authorization: []string{basic("backup", password)}, Source: here})
		require.ErrorIs(t, err, ErrWrongCredentials)
		assert.Equal(t, ByPassword, who.Method)
	}
}

func TestSharedTokensAreRejected(t *testing.T) {
	h := HashToken("x", time.Time{})
	_, err := New([]User{{Name: "a", Tokens: []TokenHash{h}}, {Name: "b", Tokens: []TokenHash{HashToken("x", time.Now())}}}, Options{})
	require.ErrorContains(t, err, "token "+h.ID()+" is listed for user a and for user b")
}

// Attempts with wrong tokens are rate limited. Valid tokens and passwords from the same address are
// not affected.
func TestWrongTokensAreRateLimited(t *testing.T) {
	now := time.Unix(1e9, 0)
	right := NewToken()
	a, err := New([]User{{Name: "backup", Tokens: []TokenHash{HashToken(right, time.Time{})}}, {Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}}},
		Options{FailuresPerMinute: 60, Now: func() time.Time { return now }})
	require.NoError(t, err)
	var slow *TooManyFailuresError
	for range failuresBurst {
		_, err := a.Authenticate(t.Context(), bearer(NewToken()))
		require.ErrorIs(t, err, ErrWrongCredentials)
	}
	_, err = a.Authenticate(t.Context(), bearer(NewToken()))
	require.ErrorAs(t, err, &slow)
	assert.NotZero(t, slow.RetryAfter)
	_, err = a.Authenticate(t.Context(), bearer(right))
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), Evidence{Authorization: []string{basic("ann", "right")}, Source: here})
	require.NoError(t, err)
	now = now.Add(time.Second)
	_, err = a.Authenticate(t.Context(), bearer(NewToken()))
	require.ErrorIs(t, err, ErrWrongCredentials)
}

func BenchmarkAuthenticateToken(b *testing.B) {
	token := NewToken()
	a, err := New([]User{{Name: "backup", Tokens: []TokenHash{HashToken(token, time.Time{})}}}, Options{})
	require.NoError(b, err)
	e := bearer(token)
	for b.Loop() {
		_, _ = a.Authenticate(b.Context(), e)
	}
}
