package keys

import (
	"context"
	"fmt"
	"sync"
)

// nameLocks is a set of locks, one for each name. A change that waits for the target does not delay
// changes to other names.
type nameLocks struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the lock is released
}

// acquire waits for the lock on a name, and returns the function that releases it. The error is
// ctx's.
func (t *nameLocks) acquire(ctx context.Context, name string) (release func(), err error) {
	for {
		t.mu.Lock()
		other, busy := t.taken[name]
		if !busy {
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			t.taken[name] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.taken, name)
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another change of the same key or by the same user: %w", ctx.Err())
		}
	}
}

// serialStore is a Store that performs one operation at a time, because systemd starts a keeper
// process for each request.
type serialStore struct {
	mu    sync.Mutex
	store Store
}

func (o *serialStore) Place(name, secret string) (Outcome, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.store.Place(name, secret)
}

func (o *serialStore) Remove(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.store.Remove(name)
}

func (o *serialStore) List() (Listing, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.store.List()
}
