package authn

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var here = netip.MustParseAddr("192.0.2.1")

// A countingHash is a Hash that counts its computations.
type countingHash struct {
	password string
	price    uint64        // kind of the hash
	hashed   *atomic.Int32 // number of computations, including those of decoys
	decoyed  *atomic.Int32
	block    chan struct{} // if not nil, matches waits for it
}

func newCountingHash(password string, price uint64) *countingHash {
	return &countingHash{password: password, price: price, hashed: new(atomic.Int32), decoyed: new(atomic.Int32)}
}

func (h *countingHash) matches(password string) bool {
	h.hashed.Add(1)
	if h.block != nil {
		<-h.block
	}
	return h.password != "" && password == h.password
}
func (h *countingHash) ID() string   { return "of " + h.password }
func (h *countingHash) kind() string { return fmt.Sprint(h.price) }
func (h *countingHash) decoy() Hash {
	return &countingHash{price: h.price, hashed: h.decoyed, decoyed: h.decoyed}
}

func basic(name, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
}

// by adds a helper that authenticates by password to an Authenticator.
type by struct{ *Authenticator }

func (a by) Authenticate(ctx context.Context, header string, from netip.Addr) (string, error) {
	e := Evidence{Source: from}
	if header != "" {
		e.Authorization = []string{header}
	}
	who, err := a.Authenticator.Authenticate(ctx, e)
	return who.User, err
}

// Concurrent logins from different sources do not share an attempt, even if their credentials are
// the same.
func TestSourcesDoNotShareAttempts(t *testing.T) {
	h := newCountingHash("right", 1)
	a, elsewhere := newBasic(t, Options{}, User{Name: "admin", Hashes: []Hash{h}}), netip.MustParseAddr("198.51.100.1")
	for range failuresBurst {
		_, err := a.Authenticate(t.Context(), basic("admin", "wrong"), elsewhere)
		require.ErrorIs(t, err, ErrWrongCredentials)
	}
	h.block = make(chan struct{})
	before, done := h.hashed.Load(), make(chan error)
	go func() {
		_, err := a.Authenticate(t.Context(), basic("admin", "right"), here)
		done <- err
	}()
	require.Eventually(t, func() bool { return h.hashed.Load() > before }, time.Minute, time.Millisecond)
	// a login with the correct password completes immediately
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	_, err := a.Authenticate(ctx, basic("admin", "right"), elsewhere)
	var slow *TooManyFailuresError
	require.ErrorAs(t, err, &slow)
	close(h.block)
	require.NoError(t, <-done)
}

func newBasic(t testing.TB, opts Options, users ...User) by {
	a, err := New(users, opts)
	require.NoError(t, err)
	return by{a}
}

func TestPasswordsAuthenticateTheirUsers(t *testing.T) {
	b := newBasic(t, Options{FailuresPerMinute: 600}, User{Name: "ann", Hashes: []Hash{newCountingHash("a:b", 1)}}, User{Name: "Bob", Hashes: []Hash{newCountingHash("pässword", 1)}})
	for name, c := range map[string]struct {
		header, user string
		err          error
	}{
		"right":                         {basic("ann", "a:b"), "ann", nil},
		"colon in password":             {basic("ann", "a"), "ann", ErrWrongCredentials},
		"password not in ASCII":         {basic("Bob", "pässword"), "Bob", nil},
		"lower-case scheme":             {"basic" + basic("ann", "a:b")[5:], "ann", nil},
		"user names are case-sensitive": {basic("bob", "pässword"), "", ErrWrongCredentials},
		"wrong password":                {basic("ann", "x"), "ann", ErrWrongCredentials},
		"empty password":                {basic("ann", ""), "ann", ErrWrongCredentials},
		"another's":                     {basic("ann", "pässword"), "ann", ErrWrongCredentials},
		"colon at another position":     {basic("ann:a", "b"), "ann", nil}, // the name ends at the first colon
		"unknown":                       {basic("eve", "a:b"), "", ErrWrongCredentials},
		"no header":                     {"", "", ErrNoCredentials},
		"other scheme":                  {"Digest abc", "", ErrNoCredentials},
		"not base64":                    {"Basic %%%", "", ErrNoCredentials},
		"no colon":                      {"Basic " + base64.StdEncoding.EncodeToString([]byte("ann")), "", ErrNoCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from the cache, if the result can be cached
				user, err := b.Authenticate(t.Context(), c.header, here)
				assert.Equal(t, c.user, user)
				if c.err == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, c.err)
				}
			}
		})
	}
}

func TestOnlySuccessfulLoginsAreCached(t *testing.T) {
	h := newCountingHash("right", 1)
	b := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{h}})
	for range 5 {
		_, err := b.Authenticate(t.Context(), basic("ann", "right"), here)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, h.hashed.Load())
	for range 3 {
		_, err := b.Authenticate(t.Context(), basic("ann", "wrong"), here)
		require.ErrorIs(t, err, ErrWrongCredentials)
	}
	assert.EqualValues(t, 4, h.hashed.Load())
	_, err := b.Authenticate(t.Context(), basic("ann", "right"), here)
	require.NoError(t, err)
	assert.EqualValues(t, 4, h.hashed.Load(), "a failure does not evict a cached password")
	assert.Len(t, b.passwords.known, 1)
	for _, l := range b.passwords.known["ann"] {
		assert.NotContains(t, string(l.sum[:]), "right")
	}
}

// A reload keeps the cached logins of users with unchanged passwords, and drops all others.
func TestReloadKeepsCachedLogins(t *testing.T) {
	ann, bob, carl := newCountingHash("a", 1), newCountingHash("b", 1), newCountingHash("c", 1)
	now := func() time.Time { return time.Unix(0, 0) }
	first := newBasic(t, Options{Now: now}, User{Name: "ann", Hashes: []Hash{ann}}, User{Name: "bob", Hashes: []Hash{bob}}, User{Name: "carl", Hashes: []Hash{carl}})
	login := func(a by, name, password string) error {
		_, err := a.Authenticate(t.Context(), basic(name, password), here)
		return err
	}
	for name, password := range map[string]string{"ann": "a", "bob": "b", "carl": "c"} {
		require.NoError(t, login(first, name, password))
	}
	elsewhere := netip.MustParseAddr("198.51.100.1")
	for _, name := range []string{"ann", "bob"} {
		for range failuresBurst {
			_, err := first.Authenticate(t.Context(), basic(name, "wrong"), elsewhere)
			require.ErrorIs(t, err, ErrWrongCredentials)
		}
	}

	changed := newCountingHash("new", 1)
	second := newBasic(t, Options{Now: now, Former: first.Authenticator}, User{Name: "ann", Hashes: []Hash{ann}}, User{Name: "bob", Hashes: []Hash{changed}})
	hashed := ann.hashed.Load()
	require.NoError(t, login(second, "ann", "a"))
	assert.Equal(t, hashed, ann.hashed.Load(), "remembered")
	require.ErrorIs(t, login(second, "bob", "b"), ErrWrongCredentials, "the previous password is wrong at once")
	require.ErrorIs(t, login(second, "carl", "c"), ErrWrongCredentials, "a removed user is unknown at once")
	assert.NotContains(t, second.passwords.known, "bob")
	assert.NotContains(t, second.passwords.known, "carl")
	_, err := second.Authenticate(t.Context(), basic("ann", "wrong"), elsewhere)
	require.ErrorAs(t, err, new(*TooManyFailuresError), "a rate limit stays in effect")
	_, err = second.Authenticate(t.Context(), basic("bob", "new"), elsewhere)
	require.NoError(t, err, "failures with the previous password do not count")
	assert.Same(t, first.passwords.hashing, second.passwords.hashing, "a reload does not raise the limit of concurrent hashes")

	third := newBasic(t, Options{Now: now, Former: second.Authenticator}, User{Name: "carl", Hashes: []Hash{carl}})
	hashed = carl.hashed.Load()
	require.NoError(t, login(third, "carl", "c"))
	assert.Equal(t, hashed+1, carl.hashed.Load(), "the password of a user that was added again is checked")
}

// For every name, a wrong password causes as many hash computations of each kind as the user with
// the most hashes of that kind has. Otherwise, the duration would reveal whether a user exists.
func TestUnknownUsersCostAsMuchAsWrongPasswords(t *testing.T) {
	kinds := map[string][]uint64{"cheap": {1}, "dear": {9}, "both": {1, 9}, "twice": {1, 1}, "none": nil}
	var users []User
	var hashes []*countingHash
	for name, list := range kinds {
		u := User{Name: name}
		for i, price := range list {
			h := newCountingHash(fmt.Sprint(name, i), price)
			hashes, u.Hashes = append(hashes, h), append(u.Hashes, h)
		}
		if list == nil {
			u.Tokens = []TokenHash{HashToken("t", time.Time{})}
		}
		users = append(users, u)
	}
	a := newBasic(t, Options{FailuresPerMinute: 6000}, users...)
	for _, name := range []string{"cheap", "dear", "both", "twice", "none", "eve"} {
		for _, h := range hashes {
			h.hashed.Store(0)
			h.decoyed.Store(0)
		}
		_, err := a.Authenticate(t.Context(), basic(name, "wrong"), here)
		require.ErrorIs(t, err, ErrWrongCredentials)
		work := map[uint64]int32{}
		for _, h := range hashes {
			work[h.price] += h.hashed.Load() + h.decoyed.Load()
		}
		assert.Equal(t, map[uint64]int32{1: 2, 9: 1}, work, name)
	}
}

func TestConcurrentFirstCallsHashOnce(t *testing.T) {
	h := newCountingHash("right", 1)
	h.block = make(chan struct{})
	b := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{h}})
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			_, err := b.Authenticate(context.Background(), basic("ann", "right"), here)
			assert.NoError(t, err)
		})
	}
	close(h.block)
	callers.Wait()
	assert.Less(t, h.hashed.Load(), int32(100))
	_, err := b.Authenticate(t.Context(), basic("ann", "right"), here)
	require.NoError(t, err, "successful logins do not use up attempts")
}

func TestGuessingIsRateLimited(t *testing.T) {
	now := time.Unix(0, 0)
	h := newCountingHash("right", 1)
	b := newBasic(t, Options{FailuresPerMinute: 60, Now: func() time.Time { return now }}, User{Name: "ann", Hashes: []Hash{h}}, User{Name: "bob", Hashes: []Hash{newCountingHash("b", 1)}})
	try := func(name, password string, from netip.Addr) error {
		_, err := b.Authenticate(t.Context(), basic(name, password), from)
		return err
	}
	for i := range failuresBurst {
		require.ErrorIs(t, try("ann", fmt.Sprint(i), here), ErrWrongCredentials)
	}
	hashed := h.hashed.Load()
	var slow *TooManyFailuresError
	require.ErrorAs(t, try("ann", "again", here), &slow)
	assert.Equal(t, 2*time.Second, slow.RetryAfter.Round(time.Second))
	require.ErrorAs(t, try("ann", "right", here), &slow, "not even the correct password is checked")
	assert.Equal(t, hashed, h.hashed.Load())

	require.NoError(t, try("ann", "right", netip.MustParseAddr("192.0.2.2")), "other sources are not limited")
	require.NoError(t, try("ann", "right", here), "a cached password is not limited")
	require.NoError(t, try("bob", "b", here), "other users are not limited")

	now = now.Add(time.Second)
	require.ErrorIs(t, try("ann", "one more", here), ErrWrongCredentials)
	require.ErrorAs(t, try("ann", "and another", here), &slow)
}

func TestGuessingUserNamesIsRateLimited(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBasic(t, Options{Now: func() time.Time { return now }}, User{Name: "ann", Hashes: []Hash{newCountingHash("a", 1)}})
	attempts := func(name string, from netip.Addr) (n int) {
		var slow *TooManyFailuresError
		for ; ; n++ {
			_, err := b.Authenticate(t.Context(), basic(name, fmt.Sprint("x", n)), from)
			if err == nil || n > 1000 {
				t.Fatal("not slowed down")
			}
			if assert.Error(t, err) && fmt.Sprintf("%T", err) == fmt.Sprintf("%T", slow) {
				return n
			}
		}
	}
	assert.Equal(t, attempts("ann", here), attempts("nobody", netip.MustParseAddr("192.0.2.9")), "known and unknown names have the same limit")

	var slow *TooManyFailuresError
	from, n := netip.MustParseAddr("2001:db8::1"), 0
	for ; n < 1000; n++ {
		if _, err := b.Authenticate(t.Context(), basic(fmt.Sprint("n", n), "x"), from.Next()); fmt.Sprintf("%T", err) == fmt.Sprintf("%T", slow) {
			break
		}
		from = from.Next() // all addresses are in one /64
	}
	assert.Equal(t, sourceFactor*failuresBurst, n)
}

func TestLimiterMemoryIsLimited(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(1, func() time.Time { return now })
	from := here
	for range 3 * maxBuckets {
		from = from.Next()
		l.take(from, "x")
	}
	assert.LessOrEqual(t, len(l.buckets), maxBuckets+2)
}

// When there are too many buckets, full buckets are removed. A bucket with only half of its tokens
// left is kept.
func TestEvictionKeepsUsedBuckets(t *testing.T) {
	now := time.Unix(0, 0)
	l := newLimiter(1, func() time.Time { return now })
	const used = 25
	for n := range used {
		require.Zero(t, l.take(here, fmt.Sprint("n", n)))
	}
	from := netip.MustParseAddr("198.51.100.1")
	for len(l.buckets) < maxBuckets {
		from = from.Next()
		require.Zero(t, l.take(from, "x"))
	}
	now = now.Add(time.Minute) // all other buckets are full again
	require.Zero(t, l.take(from.Next(), "x"))
	require.Less(t, len(l.buckets), maxBuckets/2, "buckets were removed")
	left := 0
	for ; l.take(here, fmt.Sprint("m", left)) == 0; left++ {
	}
	assert.Equal(t, sourceFactor*failuresBurst-used+1, left)
}

func TestUncheckedPasswordDoesNotCountAsAFailedLogin(t *testing.T) {
	h := newCountingHash("right", 1)
	h.block = make(chan struct{})
	defer close(h.block)
	b := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{h}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Authenticate(ctx, basic("ann", "right"), here)
	require.ErrorIs(t, err, ErrBusy)
	require.NotErrorIs(t, err, ErrWrongCredentials)
}

func TestInvalidUsersAreRejected(t *testing.T) {
	h := newCountingHash("x", 1)
	for says, users := range map[string][]User{
		"no users":        nil,
		"colon":           {{Name: "a:b", Hashes: []Hash{h}}},
		"empty":           {{Hashes: []Hash{h}}},
		"is listed twice": {{Name: "a", Hashes: []Hash{h}}, {Name: "a", Hashes: []Hash{h}}},
	} {
		_, err := New(users, Options{})
		require.ErrorContains(t, err, says)
	}
}

func BenchmarkAuthenticateKnown(b *testing.B) {
	a := newBasic(b, Options{}, User{Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}})
	header := basic("ann", "right")
	for b.Loop() {
		_, _ = a.Authenticate(b.Context(), header, here)
	}
}
