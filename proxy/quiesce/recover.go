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
	lookEvery  = time.Second
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	// makingGrace is how long a snapshot that may be under way is waited for. SPDK
	// answers to nobody any more; when it is there it is done. One that was never
	// asked for, or failed, takes this long.
	makingGrace = time.Second
	makingPoll  = 20 * time.Millisecond
)

// Run thaws what is left frozen, whoever froze it, until ctx ends. An operation
// that a living process works on is left to it.
func (q *Quiescer) Run(ctx context.Context) {
	if q.opts.Folder == nil {
		return
	}
	retry := retryFirst
	for {
		left := q.Recover(ctx)
		wait := lookEvery
		if left > 0 {
			wait, retry = retry, min(2*retry, retryMost)
		} else {
			retry = retryFirst
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

// Recover thaws what no living process works on, once, and tells how many
// operations are left: what could not be thawed, or is not readable. What was
// frozen in a target that is away does not count; it is kept until it is known
// whether that process is gone for good. One at a time may recover.
func (q *Quiescer) Recover(ctx context.Context) (left int) {
	f := q.opts.Folder
	names, err := f.names()
	if err != nil {
		q.logFailureOnce("", "the journal of frozen volumes cannot be read", err)
		return 1
	}
	for _, name := range names {
		r, err := f.orphan(name)
		if r == nil && err == nil {
			continue
		}
		if err == nil {
			err = q.recoverOne(ctx, r)
		}
		if err == nil {
			delete(q.told, name)
			continue
		}
		if r != nil {
			r.release()
		}
		if !errors.Is(err, ErrAway) {
			left++
		}
		q.logFailureOnce(name, "volumes are frozen, and hosts hold their I/O back: trying again", err)
	}
	if q.opts.Leave {
		return left
	}
	thawed, err := f.collect()
	if err != nil {
		q.logFailureOnce("", "the journal of frozen volumes cannot be cleaned up", err)
	}
	if thawed > 0 {
		q.opts.Watch.Recovered(thawed)
	}
	return left
}

// logFailureOnce logs an error when it is another one than before.
func (q *Quiescer) logFailureOnce(name, message string, err error) {
	if q.told[name] != err.Error() {
		q.told[name] = err.Error()
		q.opts.Log.Error(message, "entry", name, "error", err)
	}
}

// recoverOne thaws what an entry says, and ends it.
func (q *Quiescer) recoverOne(ctx context.Context, r *record) error {
	e := r.entry
	attrs := []any{slog.Any("subsystems", e.nqns()), slog.String("since", e.Made.Format(time.RFC3339Nano))}
	over := func() error {
		q.opts.Log.Info("the target was restarted, so nothing is frozen any more", attrs...)
		return r.remove()
	}
	process, err := q.opts.Process(e.At.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrAway, err)
	case err != nil:
		return err
	case process != e.Process:
		return over()
	}
	t, err := q.opts.Connect.to(ctx, e.At)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }()
	if t.Process != e.Process {
		return over()
	}
	if _, unmade := q.unmade.Load(r.name); !unmade {
		awaitMaking(ctx, t, e.Making, q.grace)
		awaitDeleting(ctx, e.Deleting, q.grace)
	}
	bounded, cancel := context.WithTimeout(ctx, thawWithin)
	defer cancel()
	if err := thaw(bounded, t, e.Paths, false); err != nil {
		return err
	}
	q.unmade.Delete(r.name)
	q.opts.Log.Warn("volumes that were left frozen are thawed", append(attrs, slog.Int64("frozen_ms", time.Since(e.Made).Milliseconds()))...)
	return r.rename(thawedTag)
}

// awaitMaking returns when all snapshots are there, or after a grace period.
func awaitMaking(ctx context.Context, t *Target, aliases []string, grace time.Duration) {
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

// awaitDeleting waits for a deletion that may be under way. SPDK tells nobody when
// the clone has taken the clusters over: the snapshot's bdev goes before that.
func awaitDeleting(ctx context.Context, aliases []string, grace time.Duration) {
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
