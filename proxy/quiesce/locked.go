package quiesce

import (
	"context"
	"errors"
)

// Names contains the names of objects that a call uses: NQNs, names and aliases of bdevs, and any
// other keys that callers agree on.
type Names struct {
	Exclusive []string // other calls must not use these concurrently
	Shared    []string // other calls may share these
}

func (n Names) locks() lockSet {
	l := locksOf(exclusive, n.Exclusive)
	l.add(shared, n.Shared...)
	return l
}

// WhileLocked locks the names that find returns, calls do, and keeps the locks until SPDK has
// responded. After locking, it calls find again; if there are now additional names, it returns a
// *BusyError. Other errors are those of find, do or ctx.
func (q *Quiescer) WhileLocked(ctx context.Context, find func(context.Context) (Names, error), do Call) error {
	names, err := find(ctx)
	if err != nil {
		return err
	}
	locked := names.locks()
	release, err := q.lock(ctx, locked)
	if err != nil {
		return err
	}
	o := &operation{q: q, free: func() {}, held: []func(){release}}
	defer o.leave()
	if names, err = find(ctx); err != nil {
		return err
	}
	if !locked.cover(names.locks()) {
		return &BusyError{Why: "the volumes are being changed"}
	}
	o.settled, err = do()
	return err
}

// WhileRead acquires shared locks on the names that find returns, and calls do, which must only
// read. If an operation is waiting for one of the names, do's context is canceled; otherwise,
// clients with overlapping reads could delay deletions forever. The errors are those of
// WhileLocked.
func (q *Quiescer) WhileRead(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error {
	var locked lockSet
	return q.WhileLocked(ctx, func(ctx context.Context) (Names, error) {
		names, err := find(ctx)
		locked = locksOf(shared, names)
		return Names{Shared: names}, err
	}, func() (<-chan struct{}, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer q.gate.read(locked, func() { cancel(errInterrupted) })()
		err := do(ctx)
		if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
			return nil, &BusyError{Why: errInterrupted.Error(), Err: err}
		}
		return nil, err
	})
}

var errInterrupted = errors.New("another call is deleting or changing one of these volumes or snapshots")
