package quiesce

import (
	"context"
	"sync"
)

// An operation is a user's request. It occupies a slot and a connection to the target, except while
// it waits for locks.
type operation struct {
	q      *Quiescer
	user   string
	awaits bool // waits for its client while volumes are frozen; see Mode.Wait
	t      *Target
	free   func()   // returns the slot and closes the connection; has no effect after free or done
	done   func()   // like free, but for an operation without failed calls
	held   []func() // functions that release the operation's locks
	// settled is closed when SPDK has responded to a call that outlasted its caller. If there is no
	// such call, it is nil.
	settled <-chan struct{}
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
	var once sync.Once
	o.free = func() {
		once.Do(func() {
			_ = t.Close()
			leave()
		})
	}
	o.done = func() {
		if t.Reuse == nil {
			o.free()
			return
		}
		once.Do(func() {
			t.Reuse()
			leave()
		})
	}
	return nil
}

// leave ends the operation. It releases the slot and the connection, and releases the locks as soon
// as SPDK has responded to all calls.
func (o *operation) leave() {
	o.free()
	if o.settled != nil {
		select {
		case <-o.settled:
		default:
			go func() {
				<-o.settled
				o.unlock()
			}()
			return
		}
	}
	o.unlock()
}

func (o *operation) unlock() {
	for _, release := range o.held {
		release()
	}
	o.held = nil
}

// lock acquires locks, which leave releases. If it must wait, it gives up the operation's slot in
// the meantime, so that other operations can run.
func (o *operation) lock(ctx context.Context, l lockSet) error {
	if o.q.gate.tryLock(l) {
		o.held = append(o.held, func() { o.q.gate.release(l) })
		return nil
	}
	process := o.t.Process
	o.done()
	release, err := o.q.lock(ctx, l)
	if err != nil {
		return err
	}
	o.held = append(o.held, release)
	if err := o.enter(ctx); err != nil {
		return err
	}
	if o.t.Process != process {
		return &BusyError{Why: "the target was restarted"}
	}
	return nil
}
