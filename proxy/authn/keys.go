package authn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// How an issuer's keys are kept. A key that is not known is looked for at most
// once in fetchEvery, whoever asks and however often; so is an issuer that does
// not answer. Keys are fetched again while old ones are used, and before old ones
// are used that are overdue, so that those that an issuer no longer shows are
// forgotten. Without an issuer they are believed for a day.
const (
	fetchEvery  = 10 * time.Second
	fetchWithin = 5 * time.Second
	refreshed   = 5 * time.Minute
	overdue     = 15 * time.Minute
	believed    = 24 * time.Hour
)

// A keyring holds the keys of one issuer. It fetches them when somebody comes
// with a token of that issuer, and not before.
type keyring struct {
	fetch func(context.Context) ([]jose.JSONWebKey, error)
	now   func() time.Time

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time     // when the keys were
	tried   time.Time     // when it was last tried
	failure error         // of the last try
	flight  chan struct{} // closed when the try under way ends; nil: none is
}

// find returns the keys that may have signed under a key id; none if there is no
// such key. It fails with ErrCannotTell when that is not known. Whoever waits for
// the issuer waits alone: keys that are there, and not overdue, are returned at once.
func (k *keyring) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	for {
		k.mu.Lock()
		now := k.now()
		age := now.Sub(k.fetched)
		if age >= believed {
			k.keys = nil
		}
		found := withID(k.keys, id)
		if len(found) == 0 && age >= fetchEvery || age >= refreshed {
			k.start(now)
		}
		flight, failure := k.flight, k.failure
		k.mu.Unlock()
		switch {
		case len(found) > 0 && (age < overdue || flight == nil):
			return found, nil
		case len(found) == 0 && age < fetchEvery:
			return nil, nil // these are the issuer's keys of now
		case flight == nil:
			return nil, fmt.Errorf("%w: %w", ErrCannotTell, failure)
		}
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrCannotTell, ctx.Err())
		}
	}
}

// start begins to fetch, unless that is under way or was tried a moment ago.
// k.mu is held.
func (k *keyring) start(now time.Time) {
	if k.flight != nil || !k.tried.IsZero() && now.Sub(k.tried) < fetchEvery {
		return
	}
	done := make(chan struct{})
	k.flight, k.tried = done, now
	go func() {
		// Not the context of a request: others wait for the same.
		ctx, cancel := context.WithTimeout(context.Background(), fetchWithin)
		defer cancel()
		keys, err := k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.flight, k.failure = nil, err
		k.tried = k.now() // it may have taken long
		if err == nil {
			k.keys, k.fetched = keys, k.tried
		}
		close(done)
	}()
}

// withID chooses by key id. A token without one may be signed by any key.
func withID(keys []jose.JSONWebKey, id string) (found []jose.JSONWebKey) {
	for _, key := range keys {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found
}

// fixedKeys are a keyring of keys that are never fetched.
func fixedKeys(keys []jose.JSONWebKey, now func() time.Time) *keyring {
	return &keyring{
		fetch: func(context.Context) ([]jose.JSONWebKey, error) { return keys, nil },
		now:   now,
	}
}

var errNoKeys = errors.New("there is no key in it that could verify a token (RSA from 2048 bits, ECDSA or Ed25519)")
