package keys

import (
	"context"
	"fmt"
	"sync"
)

// nameLocks are one lock for each of many names. Whoever waits for the target with one
// name delays nobody with another.
type nameLocks struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when it is given back
}

// acquire waits for the lock of a name, and returns what releases it. The error is ctx's: nothing was done yet.
func (t *nameLocks) acquire(ctx context.Context, name string) (give func(), err error) {
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
			return nil, fmt.Errorf("wait for a change of the same key, or user: %w", ctx.Err())
		}
	}
}

// serialStore is a Store that is asked one thing at a time: a keeper is a process for
// each question.
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
