package connect

import (
	"context"
	"errors"
	"time"
)

// earlier returns a context that ends shortly before ctx does, so that an operation's error still
// reaches its caller.
func earlier(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Second, time.Until(deadline)/8)))
}

// timeout returns the reason why ctx ended: its cause, or ErrTimeout if its deadline has passed.
func timeout(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ErrTimeout
}

// poll calls the function try repeatedly until it is done or fails. inTime is false if ctx ends
// first.
func poll(ctx context.Context, try func() (done bool, err error)) (inTime bool, err error) {
	const interval = 25 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if done, err := try(); done || err != nil {
			return true, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}
