package quiesce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	recoverInterval = time.Second
	minRetry        = 50 * time.Millisecond
	maxRetry        = time.Second
	// makingGrace limits how long recovery waits for a snapshot that SPDK may still be taking.
	// SPDK's response has been lost, but once the snapshot's bdev exists, the snapshot is complete.
	// If the call was never sent or has failed, no bdev appears, and recovery waits for the whole
	// period.
	makingGrace = time.Second
	makingPoll  = 20 * time.Millisecond
	// recheckDelay is how long recovery waits after a thaw before it checks the paths again. Calls
	// that freeze several volumes are sent together, and SPDK may be late in executing a call to
	// which it has not responded.
	recheckDelay = 50 * time.Millisecond
)

// Run thaws volumes left frozen by any process, until ctx ends. It skips operations that a running
// process is working on.
func (q *Quiescer) Run(ctx context.Context) {
	if q.opts.Folder == nil {
		return
	}
	retry := minRetry
	for {
		left := q.Recover(ctx)
		wait := recoverInterval
		if left > 0 {
			wait, retry = retry, min(2*retry, maxRetry)
		} else {
			retry = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		case <-time.After(wait):
		}
	}
}

func (q *Quiescer) recoverSoon() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Recover makes one attempt to thaw the operations that no running process is working on. It
// returns the number of operations that it could not thaw, including those with unreadable entries.
// If a target is not running, its operations are kept but not counted. Recover must not be called
// concurrently.
func (q *Quiescer) Recover(ctx context.Context) (left int) {
	f := q.opts.Folder
	names, err := f.names()
	if err != nil {
		q.logFailureOnce("", "cannot read the freeze journal", err)
		return 1
	}
	for _, name := range names {
		r, err := f.lockOrphan(name)
		if r == nil && err == nil {
			continue
		}
		if err == nil {
			err = q.recoverOne(ctx, r)
		}
		if err == nil {
			delete(q.lastLogged, name)
			continue
		}
		if r != nil {
			r.release()
		}
		if !errors.Is(err, ErrAway) {
			left++
		}
		q.logFailureOnce(name, "volumes are still frozen, and hosts hold back I/O; retrying", err)
	}
	if q.opts.Leave {
		return left
	}
	thawed, err := f.cleanUp()
	if err != nil {
		q.logFailureOnce("", "cannot clean up the freeze journal", err)
	}
	if thawed > 0 {
		q.opts.Observer.Recovered(thawed)
	}
	return left
}

// logFailureOnce logs an error if it differs from the last error logged for the entry.
func (q *Quiescer) logFailureOnce(name, message string, err error) {
	if q.lastLogged[name] != err.Error() {
		q.lastLogged[name] = err.Error()
		q.opts.Log.Error(message, "entry", name, "error", err)
	}
}

// recoverOne thaws an entry's paths, and ends the entry.
func (q *Quiescer) recoverOne(ctx context.Context, r *record) error {
	e := r.entry
	attrs := []any{slog.Any("subsystems", e.nqns()), slog.String("since", e.Made.Format(time.RFC3339Nano))}
	removeStale := func() error {
		q.opts.Log.Info("volumes are no longer frozen because the target was restarted", attrs...)
		return r.remove()
	}
	process, err := q.opts.Process(e.At.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrAway, err)
	case err != nil:
		return err
	case process != e.Process:
		return removeStale()
	}
	t, err := q.opts.Connect.to(ctx, e.At)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }()
	if t.Process != e.Process {
		return removeStale()
	}
	if _, settled := q.settled.Load(r.name); !settled {
		awaitSnapshots(ctx, t, e.Making, q.grace)
		awaitDeletions(ctx, e.Deleting, q.grace)
	}
	bounded, cancel := context.WithTimeout(ctx, thawTimeout)
	defer cancel()
	if err := thaw(bounded, t, e.Paths, false); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(recheckDelay):
	}
	if err := thaw(bounded, t, e.Paths, true); err != nil {
		return err
	}
	q.settled.Delete(r.name)
	q.opts.Log.Warn("volumes that were left frozen have been thawed", append(attrs, slog.Int64("frozen_ms", time.Since(e.Made).Milliseconds()))...)
	return r.rename(thawedTag)
}

// awaitSnapshots waits until all snapshots exist, or until the grace period ends.
func awaitSnapshots(ctx context.Context, t *Target, aliases []string, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, alias := range aliases {
		for {
			_, err := t.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &alias})
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(makingPoll):
			}
		}
	}
}

// awaitDeletions waits for the grace period if SPDK may still be executing a deletion. It cannot
// detect the end of such a deletion, because the snapshot's bdev disappears before the clone has
// taken over the clusters.
func awaitDeletions(ctx context.Context, aliases []string, grace time.Duration) {
	if len(aliases) == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(grace):
	}
}

func (e entry) nqns() (list []string) {
	for _, p := range e.Paths {
		list = append(list, p.NQN)
	}
	return distinct(list)
}
