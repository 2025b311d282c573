package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrNoAnswer means that a server did not respond in time.
var ErrNoAnswer = errors.New("no complete response in time")

// Bounds limits how Read reads servers.
type Bounds struct {
	AtOnce int           // servers read concurrently
	Each   time.Duration // time limit per server
}

// Read calls read for each index below n, and returns when all calls have ended. Each call gets a
// context with its own deadline, and must return when that context ends. failed receives the error
// for one server: the error that read returned, or an error that wraps ErrNoAnswer if the deadline
// has passed.
func Read(ctx context.Context, n int, b Bounds, read func(ctx context.Context, i int) error, failed func(i int, err error)) {
	var all errgroup.Group
	all.SetLimit(b.AtOnce)
	for i := range n {
		all.Go(func() error {
			one, cancel := context.WithTimeout(ctx, b.Each)
			defer cancel()
			err := read(one, i)
			if errors.Is(one.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
				// The data is incomplete although read returned no error.
				err = fmt.Errorf("%w: %s have passed", ErrNoAnswer, b.Each)
			}
			if err != nil {
				failed(i, err)
			}
			return nil
		})
	}
	_ = all.Wait() // the group's functions return no errors
}
