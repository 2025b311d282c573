package authn

import (
	"context"
	"crypto/hmac"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// passwords authenticates users by name and password.
//
// Hashing is slow on purpose, so the last success of each user is remembered; failures are
// never remembered.
type passwords struct {
	names   map[string]bool // of all users
	hashes  map[string]Hash
	decoy   Hash // nil: no user has a password
	limiter *limiter
	sums    *macer
	hashing *hashing
	flights singleflight.Group

	mu    sync.RWMutex
	known map[string]mac // by user
}

// hashWait is how long a login waits until its password may be hashed.
const hashWait = 10 * time.Second

func newPasswords(users []User, sums *macer, opts Options) *passwords {
	p := &passwords{
		names: map[string]bool{}, hashes: map[string]Hash{}, known: map[string]mac{},
		limiter: newLimiter(opts.FailuresPerMinute, opts.Now), sums: sums, hashing: newHashing(),
	}
	var costliest Hash
	for _, u := range users {
		p.names[u.Name] = true
		if u.Hash == nil {
			continue
		}
		p.hashes[u.Name] = u.Hash
		if costliest == nil || u.Hash.cost() > costliest.cost() {
			costliest = u.Hash
		}
	}
	if costliest != nil {
		p.decoy = costliest.decoy()
	}
	return p
}

// carryOver takes over what former remembers: failures, known sources, and the logins of users
// whose password has not changed.
func (p *passwords) carryOver(former *passwords) {
	p.hashing = former.hashing
	if p.limiter.perSecond == former.limiter.perSecond {
		p.limiter = former.limiter
	}
	former.mu.RLock()
	defer former.mu.RUnlock()
	for name, hash := range p.hashes {
		if !reflect.DeepEqual(hash, former.hashes[name]) {
			p.limiter.forget(name)
		} else if sum, ok := former.known[name]; ok {
			p.known[name] = sum
		}
	}
}

func (p *passwords) identify(ctx context.Context, name, password string, source netip.Addr) (Identity, error) {
	who := Identity{User: name, Method: ByPassword}
	sum := sumOf(p.sums, ByPassword, name, password)
	p.mu.RLock()
	known, ok := p.known[name]
	p.mu.RUnlock()
	if ok && hmac.Equal(known[:], sum[:]) {
		return who, nil
	}
	if !p.names[name] {
		who.User = ""
	}
	return who, p.check(ctx, name, password, sum, source)
}

// check hashes the password, once for all concurrent requests with the same credentials and
// source. A user who does not exist or has no password costs a hash too.
func (p *passwords) check(ctx context.Context, name, password string, sum mac, source netip.Addr) error {
	done := p.flights.DoChan(source.String()+string(sum[:]), func() (any, error) {
		if wait := p.limiter.take(source, name); wait > 0 {
			return nil, &TooManyFailuresError{RetryAfter: wait}
		}
		// Not the context of one request, because several requests wait for this.
		ctx, cancel := context.WithTimeout(context.Background(), hashWait)
		defer cancel()
		if err := p.hashing.acquire(ctx, source); err != nil {
			p.limiter.refund(source, name)
			return nil, ErrBusy
		}
		defer p.hashing.release()
		h, exists := p.hashes[name]
		if !exists {
			h = p.decoy
		}
		if h == nil || !h.matches(password) || !exists {
			return nil, ErrWrongCredentials
		}
		p.limiter.refund(source, name)
		p.hashing.addSource(source)
		p.mu.Lock()
		p.known[name] = sum
		p.mu.Unlock()
		return nil, nil
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
}
