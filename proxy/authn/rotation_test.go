package authn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While clients switch from one password to the next, both passwords are valid, each is hashed
// once, and the Identity shows which password was used.
func TestTwoPasswordsAreValidDuringRotation(t *testing.T) {
	before, after := newCountingHash("old", 1), newCountingHash("new", 1)
	a := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{before, after}})
	for range 3 {
		for _, h := range []*countingHash{before, after} {
			who, err := a.Authenticator.Authenticate(t.Context(), Evidence{Authorization: []string{basic("ann", h.password)}, Source: here})
			require.NoError(t, err)
			assert.Equal(t, Identity{User: "ann", Method: ByPassword, Credential: h.ID()}, who)
		}
	}
	assert.EqualValues(t, 2, before.hashed.Load(), "each password is hashed once, even if clients alternate between the two")
	assert.EqualValues(t, 1, after.hashed.Load())
	who, err := a.Authenticator.Authenticate(t.Context(), Evidence{Authorization: []string{basic("ann", "wrong")}, Source: here})
	require.ErrorIs(t, err, ErrWrongCredentials)
	assert.Empty(t, who.Credential, "a failed attempt used no password")

	_, err = New([]User{{Name: "ann", Hashes: []Hash{before, after, newCountingHash("third", 1)}}}, Options{})
	require.ErrorContains(t, err, "user ann has 3 password hashes, but at most 2 are allowed")
	_, err = New([]User{{Name: "ann", Hashes: []Hash{before, before}}}, Options{})
	require.ErrorContains(t, err, "two password hashes of user ann begin with the same salt")
}

// Whatever the user name, a wrong password causes as many hash computations as the largest number
// of passwords that any user has.
func TestWrongPasswordsCostTheSame(t *testing.T) {
	two := []Hash{newCountingHash("a1", 1), newCountingHash("a2", 1)}
	one := newCountingHash("b", 1)
	a := newBasic(t, Options{FailuresPerMinute: 6000}, User{Name: "ann", Hashes: two}, User{Name: "bob", Hashes: []Hash{one}}, User{Name: "carl", Tokens: []TokenHash{HashToken("t", time.Time{})}})
	hashed := func() (n int32) {
		for _, h := range append([]Hash{one}, two...) {
			n += h.(*countingHash).hashed.Load() + h.(*countingHash).decoyed.Load()
		}
		return n
	}
	for _, name := range []string{"ann", "bob", "carl", "eve"} {
		before := hashed()
		_, err := a.Authenticate(t.Context(), basic(name, "wrong"), here)
		require.ErrorIs(t, err, ErrWrongCredentials)
		assert.EqualValues(t, 2, hashed()-before, name)
	}
}

// A second password does not increase the number of allowed guesses.
func TestSecondPasswordDoesNotSpeedUpGuessing(t *testing.T) {
	now := func() time.Time { return time.Unix(0, 0) }
	before, after := newCountingHash("old", 1), newCountingHash("new", 1)
	a := newBasic(t, Options{Now: now}, User{Name: "ann", Hashes: []Hash{before, after}})
	for range failuresBurst {
		_, err := a.Authenticate(t.Context(), basic("ann", "wrong"), here)
		require.ErrorIs(t, err, ErrWrongCredentials)
	}
	_, err := a.Authenticate(t.Context(), basic("ann", "new"), here)
	require.ErrorAs(t, err, new(*TooManyFailuresError))

	b := newBasic(t, Options{Now: now, Former: a.Authenticator}, User{Name: "ann", Hashes: []Hash{after}})
	_, err = b.Authenticate(t.Context(), basic("ann", "new"), here)
	require.ErrorAs(t, err, new(*TooManyFailuresError), "removing a password does not reset the limit")
}

// If a reload adds or removes one of a user's passwords, cached logins with the other password
// remain valid.
func TestReloadKeepsLoginsWithTheOtherPassword(t *testing.T) {
	before, after := newCountingHash("old", 1), newCountingHash("new", 1)
	login := func(a by, password string) error {
		_, err := a.Authenticate(t.Context(), basic("ann", password), here)
		return err
	}
	first := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{before}})
	require.NoError(t, login(first, "old"))
	second := newBasic(t, Options{Former: first.Authenticator}, User{Name: "ann", Hashes: []Hash{after, before}})
	require.NoError(t, login(second, "old"))
	assert.EqualValues(t, 1, before.hashed.Load(), "remembered")
	require.NoError(t, login(second, "new"))
	third := newBasic(t, Options{Former: second.Authenticator}, User{Name: "ann", Hashes: []Hash{after}})
	require.NoError(t, login(third, "new"))
	assert.EqualValues(t, 1, after.hashed.Load(), "remembered")
	require.ErrorIs(t, login(third, "old"), ErrWrongCredentials)
}

// A password's ID is part of the salt, which does not help in guessing the password.
func TestPasswordIDIsPartOfTheSalt(t *testing.T) {
	for text, id := range map[string]string{
		"$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz": "c29tZXNh",
		"$2y$04$CCCDDDEEEFFCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW":             "CCCDDDEE",
	} {
		h, err := ParseHash(text)
		require.NoError(t, err)
		assert.Equal(t, id, h.ID())
	}
}
