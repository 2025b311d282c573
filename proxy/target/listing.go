package target

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Why a call was not sent.
var (
	ErrDeleting = errors.New("volumes are being deleted, and this release of SPDK crashes when volumes are listed meanwhile")
	ErrListing  = errors.New("volumes are being listed, and this release of SPDK crashes when a volume is deleted meanwhile")
)

// Before v24.09, SPDK ends when bdev_lvol_get_lvols finds a volume whose clusters are
// being cleared (https://github.com/spdk/spdk/issues/3505).
var (
	listsSafely = rpcschema.MustRelease("v24.09")
	listing     = []string{"bdev_lvol_get_lvols"}
	deleting    = []string{"bdev_lvol_delete", "bdev_lvol_delete_lvstore"}
)

// listingGate keeps two kinds of calls from being under way together: calls of one kind may
// run side by side. A call that waits to delete lets no further listing begin, since
// listings are short; one that waits to list gives up after a while, as deletions may
// take minutes.
type listingGate struct {
	mu      sync.Mutex
	lists   int
	deletes int // under way, or waiting for lists
	changed chan struct{}
}

// enter waits until a call may be sent to a target of a release, and returns what to
// call when SPDK has ended it. The error is ErrDeleting, ErrListing or ErrAbandoned.
func (a *listingGate) enter(ctx context.Context, r rpcschema.Release, method string, wait time.Duration) (leave func(), err error) {
	lists, deletes := slices.Contains(listing, method), slices.Contains(deleting, method)
	if !lists && !deletes || !r.Before(listsSafely) {
		return func() {}, nil
	}
	patience := time.NewTimer(wait)
	defer patience.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	mine, others, late := &a.lists, &a.deletes, ErrDeleting
	if deletes {
		mine, others, late = &a.deletes, &a.lists, ErrListing
		a.deletes++
	}
	for *others > 0 {
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-patience.C:
			err = late
		case <-ctx.Done():
			err = ErrAbandoned
		}
		a.mu.Lock()
		if err != nil {
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
		a.end(mine)
	}, nil
}

// end counts a call down and wakes those that wait. The lock is held.
func (a *listingGate) end(n *int) {
	*n--
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// Deleting waits until a target of a release may delete volumes, and keeps away what may not be under way meanwhile until
// leave is called. It is for deletions on a Direct, which do not wait by themselves. The error is ErrListing or ErrAbandoned.
func (t *Target) Deleting(ctx context.Context, r rpcschema.Release) (leave func(), err error) {
	return t.listing.enter(ctx, r, deleting[0], t.config.QueueWait)
}
