package authn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// These constants control when an issuer's keys are fetched, and how long they are used.
const (
	fetchInterval = 10 * time.Second // minimum time between fetches, whichever key is needed
	fetchTimeout  = 5 * time.Second
	// age at which keys are fetched again while still being used
	refreshAge = 5 * time.Minute
	// age at which requests wait for the fetch in progress
	overdueAge = 15 * time.Minute
	// age at which keys are no longer used, even if the issuer does not respond
	maxKeyAge = 24 * time.Hour
)

// A keyring contains the keys of one issuer. It fetches them when the first token from that issuer
// arrives.
type keyring struct {
	fetch func(context.Context) ([]jose.JSONWebKey, error)
	now   func() time.Time

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fetched time.Time     // when the keys were fetched
	tried   time.Time     // when the last fetch ended or, if a fetch is running, when it began
	failure error         // error of the last fetch
	flight  chan struct{} // closed when the running fetch ends; nil if no fetch is running
}

// find returns the keys with this id, or all keys if id is "". If the issuer has no such key, find
// returns no keys; if this cannot be determined, it returns ErrCannotTell. While the cached keys
// are younger than overdueAge, find waits for the issuer only if it needs a new key.
func (k *keyring) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	for {
		k.mu.Lock()
		now := k.now()
		age := now.Sub(k.fetched)
		if age >= maxKeyAge {
			k.keys = nil
		}
		found := withID(k.keys, id)
		if len(found) == 0 && age >= fetchInterval || age >= refreshAge {
			k.start(now)
		}
		flight, failure := k.flight, k.failure
		k.mu.Unlock()
		switch {
		case len(found) > 0 && (age < overdueAge || flight == nil):
			return found, nil
		case len(found) == 0 && age < fetchInterval:
			return nil, nil // the keys are current, so the issuer has no such key
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

// start begins a fetch, unless a fetch is running or ended less than fetchInterval ago. The caller
// must hold k.mu.
func (k *keyring) start(now time.Time) {
	if k.flight != nil || !k.tried.IsZero() && now.Sub(k.tried) < fetchInterval {
		return
	}
	done := make(chan struct{})
	k.flight, k.tried = done, now
	go func() {
		// Do not use a request's context, because several requests wait for this fetch.
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		keys, err := k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.flight, k.failure = nil, err
		k.tried = k.now()
		if err == nil {
			k.keys, k.fetched = keys, k.tried
		}
		close(done)
	}()
}

// withID returns the keys with this id. If id is "", it returns all keys, because any of them may
// have signed a token without a key id.
func withID(keys []jose.JSONWebKey, id string) (found []jose.JSONWebKey) {
	for _, key := range keys {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found
}

// fixedKeys returns a keyring that contains these keys and never fetches any.
func fixedKeys(keys []jose.JSONWebKey, now func() time.Time) *keyring {
	return &keyring{
		fetch: func(context.Context) ([]jose.JSONWebKey, error) { return keys, nil },
		now:   now,
	}
}

var errNoKeys = errors.New("no key can verify a token (RSA of at least 2048 bits, ECDSA or Ed25519)")
