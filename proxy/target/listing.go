package target

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// These errors mean that a call was not sent.
var (
	ErrDeleting = errors.New("volumes are being deleted, and this release of SPDK crashes if volumes are listed during a deletion")
	ErrListing  = errors.New("volumes are being listed, and this release of SPDK crashes if a volume is deleted during a listing")
)

// Releases without [rpcschema.ListsDuringDeletion] crash if a listing and a deletion run
// concurrently.
var (
	listing  = []string{"bdev_lvol_get_lvols"}
	deleting = []string{"bdev_lvol_delete", "bdev_lvol_delete_lvstore"}
)

// listingGate prevents listings and deletions of volumes from running concurrently. Several
// listings may run concurrently, as may several deletions. While a deletion waits, no further
// listing begins; the wait is short, because listings are short. A waiting listing gives up after
// some time, because deletions may take minutes. To prevent short overlapping deletions from
// blocking listings forever, no further deletion begins for a short time after a listing begins to
// wait.
type listingGate struct {
	mu      sync.Mutex
	lists   int           // running listings
	deletes int           // deletions that are running or waiting for listings
	changed chan struct{} // closed when a call ends; nil if no call is waiting
	waiting int           // waiting listings
	paused  time.Time     // when a listing last made deletions wait
}

// Deletions pause for up to deletionPause to let a waiting listing begin, at most once every
// deletionPauseInterval. They do not wait longer, because the listing may itself be waiting for a
// deletion that takes minutes.
const (
	deletionPause         = 500 * time.Millisecond
	deletionPauseInterval = 5 * time.Second
)

// pause returns how long a deletion must wait so that a waiting listing can begin first. The caller
// must hold a.mu.
func (a *listingGate) pause() time.Duration {
	if a.waiting == 0 {
		return 0
	}
	return time.Until(a.paused.Add(deletionPause))
}

// enter waits until a call may be sent to a target with release r. The caller must call leave when
// SPDK has responded. The error is ErrDeleting or ErrListing, after waiting for wait, or
// ErrAbandoned.
func (a *listingGate) enter(ctx context.Context, r rpcschema.Release, method string, wait time.Duration) (leave func(), err error) {
	lists, deletes := slices.Contains(listing, method), slices.Contains(deleting, method)
	if !lists && !deletes || r.Has(rpcschema.ListsDuringDeletion) {
		return func() {}, nil
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	own, others, timeoutErr := &a.lists, &a.deletes, ErrDeleting
	if deletes {
		own, others, timeoutErr = &a.deletes, &a.lists, ErrListing
		for pause := a.pause(); pause > 0 && err == nil; pause = a.pause() {
			err = a.awaitChange(ctx, timeout.C, time.After(pause), timeoutErr)
		}
		if err != nil {
			return nil, err
		}
		a.deletes++
	} else if a.deletes > 0 {
		if a.waiting++; time.Since(a.paused) > deletionPauseInterval {
			a.paused = time.Now()
		}
		defer a.end(&a.waiting)
	}
	for *others > 0 {
		if err := a.awaitChange(ctx, timeout.C, nil, timeoutErr); err != nil {
			if deletes {
				a.end(&a.deletes)
			}
			return nil, err
		}
	}
	if lists {
		a.lists++
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.end(own)
	}, nil
}

// awaitChange waits until a call ends, or until again receives a value. The caller must hold a.mu.
// The error is timeoutErr or ErrAbandoned.
func (a *listingGate) awaitChange(ctx context.Context, timeout, again <-chan time.Time, timeoutErr error) error {
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	changed := a.changed
	a.mu.Unlock()
	defer a.mu.Lock()
	select {
	case <-changed:
	case <-again:
	case <-timeout:
		return timeoutErr
	case <-ctx.Done():
		return ErrAbandoned
	}
	return nil
}

// end decrements a counter, and wakes the waiting calls. The caller must hold a.mu.
func (a *listingGate) end(n *int) {
	*n--
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// Deleting waits until volumes may be deleted on a target with release r. No listing of volumes
// begins until leave is called. Deleting is for deletions on a Direct, whose calls do not wait at
// the listing gate. The error is ErrListing or ErrAbandoned.
func (t *Target) Deleting(ctx context.Context, r rpcschema.Release) (leave func(), err error) {
	return t.listing.enter(ctx, r, deleting[0], t.config.QueueWait)
}
