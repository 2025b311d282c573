package authn

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// MaxPasswords is the maximum number of passwords per user. With two passwords, clients can switch
// from one to the next. A wrong password costs one hash computation for each password.
const MaxPasswords = 2

// passwords authenticates users by name and password.
//
// Hashing is deliberately slow, so the last successful login with each hash is cached. Failures are
// never cached.
type passwords struct {
	names   map[string]bool // names of all users, including users without passwords
	hashes  map[string][]Hash
	decoys  map[string][]Hash // by kind; as many as the user with the most hashes of that kind has
	limiter *limiter
	sums    *macer
	hashing *hashing
	flights singleflight.Group

	mu    sync.RWMutex
	known map[string][]login // by user name
}

// A login is a successful login.
type login struct {
	sum  mac
	hash Hash
}

// hashWait is how long a login waits for its password to be hashed.
const hashWait = 10 * time.Second

func newPasswords(users []User, sums *macer, opts Options) (*passwords, error) {
	p := &passwords{
		names: map[string]bool{}, hashes: map[string][]Hash{}, decoys: map[string][]Hash{}, known: map[string][]login{},
		limiter: newLimiter(opts.FailuresPerMinute, opts.Now), sums: sums, hashing: newHashing(),
	}
	var wrong []error
	for _, u := range users {
		p.names[u.Name] = true
		if len(u.Hashes) == 0 {
			continue
		}
		wrong = append(wrong, checkHashes(u))
		p.hashes[u.Name] = u.Hashes
		for i, h := range u.Hashes {
			if kind := h.kind(); countOf(u.Hashes[:i+1], kind) > len(p.decoys[kind]) {
				p.decoys[kind] = append(p.decoys[kind], h.decoy())
			}
		}
	}
	return p, errors.Join(wrong...)
}

func checkHashes(u User) error {
	if len(u.Hashes) > MaxPasswords {
		return fmt.Errorf("user %s has %d password hashes, but at most %d are allowed: remove the hashes of passwords that no client uses anymore", u.Name, len(u.Hashes), MaxPasswords)
	}
	seen := map[string]bool{}
	for _, h := range u.Hashes {
		if seen[h.ID()] {
			return fmt.Errorf("two password hashes of user %s begin with the same salt, %s: remove the repeated one", u.Name, h.ID())
		}
		seen[h.ID()] = true
	}
	return nil
}

// countOf returns how many hashes have this kind.
func countOf(hashes []Hash, kind string) (n int) {
	for _, h := range hashes {
		if h.kind() == kind {
			n++
		}
	}
	return n
}

// carryOver copies failures, known sources, and logins with unchanged hashes from former.
func (p *passwords) carryOver(former *passwords) {
	p.hashing = former.hashing
	if p.limiter.perSecond == former.limiter.perSecond {
		p.limiter = former.limiter
	}
	former.mu.RLock()
	defer former.mu.RUnlock()
	for name, hashes := range p.hashes {
		for _, h := range hashes {
			if !contains(former.hashes[name], h) {
				p.limiter.forget(name)
			}
		}
		for _, l := range former.known[name] {
			if contains(hashes, l.hash) {
				p.known[name] = append(p.known[name], l)
			}
		}
	}
}

func contains(hashes []Hash, h Hash) bool {
	return slices.ContainsFunc(hashes, func(other Hash) bool { return reflect.DeepEqual(other, h) })
}

func (p *passwords) identify(ctx context.Context, name, password string, source netip.Addr) (Identity, error) {
	who := Identity{User: name, Method: ByPassword}
	sum := sumOf(p.sums, ByPassword, name, password)
	if h := p.recall(name, sum); h != nil {
		who.Credential = h.ID()
		return who, nil
	}
	if !p.names[name] {
		who.User = ""
	}
	h, err := p.check(ctx, name, password, sum, source)
	if h != nil {
		who.Credential = h.ID()
	}
	return who, err
}

// recall returns the hash of a cached login, or nil.
func (p *passwords) recall(name string, sum mac) Hash {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, l := range p.known[name] {
		if hmac.Equal(l.sum[:], sum[:]) {
			return l.hash
		}
	}
	return nil
}

// remember caches a login, and replaces the last login with the same hash.
func (p *passwords) remember(name string, l login) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kept []login
	for _, other := range p.known[name] {
		if other.hash.ID() != l.hash.ID() {
			kept = append(kept, other)
		}
	}
	p.known[name] = append(kept, l)
}

// check hashes the password, and returns the hash that matched. Concurrent requests with the same
// credentials from the same source share one computation.
func (p *passwords) check(ctx context.Context, name, password string, sum mac, source netip.Addr) (Hash, error) {
	done := p.flights.DoChan(source.String()+string(sum[:]), func() (any, error) {
		if wait := p.limiter.take(source, name); wait > 0 {
			return nil, &TooManyFailuresError{RetryAfter: wait}
		}
		// Do not use a request's context, because several requests wait for this hash.
		ctx, cancel := context.WithTimeout(context.Background(), hashWait)
		defer cancel()
		if err := p.hashing.acquire(ctx, source); err != nil {
			p.limiter.refund(source, name)
			return nil, ErrBusy
		}
		defer p.hashing.release()
		h := p.match(name, password)
		if h == nil {
			return nil, ErrWrongCredentials
		}
		p.limiter.refund(source, name)
		p.hashing.addSource(source)
		p.remember(name, login{sum, h})
		return h, nil
	})
	select {
	case r := <-done:
		h, _ := r.Val.(Hash)
		return h, r.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}

// match returns the user's hash that matches a password, or nil. Before match returns nil, it
// computes as many hashes of each kind as for the user with the most hashes of that kind.
// Therefore, a failure takes equally long for every name, and its duration does not reveal whether
// a user exists.
func (p *passwords) match(name, password string) Hash {
	hashes := p.hashes[name]
	for _, h := range hashes {
		if h.matches(password) {
			return h
		}
	}
	for kind, decoys := range p.decoys {
		for _, d := range decoys[countOf(hashes, kind):] {
			_ = d.matches(password)
		}
	}
	return nil
}
