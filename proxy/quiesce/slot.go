package quiesce

import (
	"context"
	"sync"
)

// A user's operation has a slot and a connection to the target, except while it waits for locks.
type operation struct {
	q      *Quiescer
	user   string
	awaits bool // the client, while volumes are frozen: see Mode.Wait
	t      *Target
	free   func() // returns the slot and closes the connection; it may be called more than once
	held   locks
}

// enter waits for a slot and connects to the target.
func (q *Quiescer) enter(ctx context.Context, mode Mode) (*operation, error) {
	o := &operation{q: q, user: mode.User, awaits: mode.Wait != nil}
	return o, o.enter(ctx)
}

func (o *operation) enter(ctx context.Context) error {
	leave, err := o.q.opts.Enter(ctx, o.user, o.awaits)
	if err != nil {
		return notExecuted(err)
	}
	t, err := o.q.opts.Connect.to(ctx, o.q.opts.At)
	if err != nil {
		leave()
		return err
	}
	o.t = t
	o.free = sync.OnceFunc(func() {
		_ = t.Close()
		leave()
	})
	return nil
}

// leave ends the operation: it releases slot, connection and locks.
func (o *operation) leave() {
	o.free()
	o.held.releaseAll()
}

// lock locks names until the operation leaves. If it must wait for them, it returns its slot for
// that time, so that other operations run.
func (o *operation) lock(ctx context.Context, names []string) error {
	names = distinct(names)
	if _, ok := o.q.gate.tryLock(names, unlocked, exclusive); ok {
		o.held.add(func() { o.q.gate.release(names, exclusive) })
		return nil
	}
	process := o.t.Process
	o.free()
	release, err := o.q.lockExclusively(ctx, names)
	if err != nil {
		return err
	}
	o.held.add(release)
	if err := o.enter(ctx); err != nil {
		return err
	}
	if o.t.Process != process {
		return &BusyError{Why: "the target was restarted"}
	}
	return nil
}
