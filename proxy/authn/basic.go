package authn

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
)

// Why a request has no user. Both credentials errors mean: not authenticated.
// ErrBusy means: could not be told in time.
var (
	ErrNoCredentials    = errors.New("no credentials were given")
	ErrWrongCredentials = errors.New("unknown user or wrong password")
	ErrBusy             = errors.New("too many logins are being checked")
)

// A TooManyFailuresError is given without looking at the credentials.
type TooManyFailuresError struct{ RetryAfter time.Duration }

func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("too many failed logins: wait %s", e.RetryAfter)
}

// A User is one that may come.
type User struct {
	Name string
	Hash Hash
}

// Options of Basic; the zero value holds the defaults.
type Options struct {
	FailuresPerMinute int              // allowed to one source and user in the long run; 0: 20
	Now               func() time.Time // the clock; nil: time.Now
}

// Basic checks HTTP Basic credentials. It may be used concurrently.
//
// Hashing is slow on purpose, so a success is remembered, as an HMAC of user
// and password under a key of this Basic alone: what is in memory is of no use
// elsewhere, and a new Basic, as a reload makes, remembers nothing. There is at
// most one remembered password for each user; failures are never remembered.
type Basic struct {
	users   map[string]Hash
	decoy   Hash
	limiter *limiter
	macs    sync.Pool // of *macState, keyed
	hashing *semaphore.Weighted
	flights singleflight.Group

	mu    sync.RWMutex
	known map[string]mac // by user
}

type mac [sha256.Size]byte

// hashWait is how long credentials wait for their turn to be hashed.
const hashWait = 10 * time.Second

// New makes a Basic of users with distinct names.
func New(users []User, opts Options) (*Basic, error) {
	if opts.FailuresPerMinute == 0 {
		opts.FailuresPerMinute = 20
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	key := random(sha256.Size)
	b := &Basic{
		users:   make(map[string]Hash, len(users)),
		limiter: newLimiter(opts.FailuresPerMinute, opts.Now),
		macs:    sync.Pool{New: func() any { return &macState{hash: hmac.New(sha256.New, key)} }},
		hashing: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
		known:   make(map[string]mac, len(users)),
	}
	var costliest Hash
	for _, u := range users {
		if u.Name == "" || strings.Contains(u.Name, ":") {
			return nil, fmt.Errorf("user name %q: must not be empty or contain a colon, which ends the name in Basic credentials", u.Name)
		}
		if _, twice := b.users[u.Name]; twice {
			return nil, fmt.Errorf("user %s stands twice", u.Name)
		}
		b.users[u.Name] = u.Hash
		if costliest == nil || u.Hash.cost() > costliest.cost() {
			costliest = u.Hash
		}
	}
	if costliest == nil {
		return nil, errors.New("there are no users")
	}
	b.decoy = costliest.decoy()
	return b, nil
}

// Authenticate tells whose credentials an Authorization header bears. With an
// error, the name is that of the user whose password was wrong, or "" when
// there is no such user, for the log and never for the client.
func (b *Basic) Authenticate(ctx context.Context, authorization string, source netip.Addr) (string, error) {
	name, password, ok := parse(authorization)
	if !ok {
		return "", ErrNoCredentials
	}
	sum := b.sum(name, password)
	b.mu.RLock()
	known, ok := b.known[name]
	b.mu.RUnlock()
	if ok && hmac.Equal(known[:], sum[:]) {
		return name, nil
	}
	if _, ok := b.users[name]; !ok {
		return "", b.check(ctx, name, password, sum, source)
	}
	return name, b.check(ctx, name, password, sum, source)
}

// check hashes, once for however many requests bring the same credentials from
// the same source at once.
func (b *Basic) check(ctx context.Context, name, password string, sum mac, source netip.Addr) error {
	done := b.flights.DoChan(source.String()+string(sum[:]), func() (any, error) {
		if wait := b.limiter.take(source, name); wait > 0 {
			return nil, &TooManyFailuresError{RetryAfter: wait}
		}
		// Not the context of one request: others wait for the same.
		ctx, cancel := context.WithTimeout(context.Background(), hashWait)
		defer cancel()
		if err := b.hashing.Acquire(ctx, 1); err != nil {
			b.limiter.refund(source, name)
			return nil, ErrBusy
		}
		defer b.hashing.Release(1)
		h, exists := b.users[name]
		if !exists {
			h = b.decoy
		}
		if !h.matches(password) || !exists {
			return nil, ErrWrongCredentials
		}
		b.limiter.refund(source, name)
		b.mu.Lock()
		b.known[name] = sum
		b.mu.Unlock()
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}

// sum is the HMAC of one user and password; the length of the name keeps
// different splits of the same text apart.
func (b *Basic) sum(name, password string) mac {
	m := b.macs.Get().(*macState)
	defer b.macs.Put(m)
	m.hash.Reset()
	m.text = binary.BigEndian.AppendUint32(m.text[:0], uint32(len(name)))
	m.text = append(append(m.text, name...), password...)
	m.hash.Write(m.text)
	clear(m.text) // a password lies about no longer than it must
	m.sum = m.hash.Sum(m.sum[:0])
	return mac(m.sum)
}

// macState is what computing an HMAC takes, kept for the next.
type macState struct {
	hash      hash.Hash
	text, sum []byte
}

// parse reads "Basic base64(name:password)".
func parse(authorization string) (name, password string, ok bool) {
	scheme, text, ok := strings.Cut(authorization, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(plain), ":")
}
