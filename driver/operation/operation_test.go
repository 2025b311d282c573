package operation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errBusy = errors.New("busy")

const wait, tick = 10 * time.Second, time.Millisecond

func TestOperationOutlivesItsCaller(t *testing.T) {
	g := &Group{Busy: errBusy}
	started, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	hang := func(_ context.Context, step *Step) (int, error) {
		step.Doing("mkfs.%s", "ext4")
		close(started)
		<-proceed
		close(ended)
		return 1, nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(errors.New("enough")) }()
	_, err := Run(ctx, g, []string{"device 7:0", "/path"}, hang)
	require.ErrorContains(t, err, "enough while mkfs.ext4")
	require.ErrorContains(t, err, "device 7:0 and /path stays locked")
	assert.Equal(t, []string{"/path", "device 7:0"}, g.Running())

	none := func(context.Context, *Step) (int, error) { return 2, nil }
	_, err = Run(t.Context(), g, []string{"other", "/path"}, none)
	require.ErrorIs(t, err, errBusy, "the first operation is still running")
	require.ErrorContains(t, err, "/path has not ended (mkfs.ext4)")
	n, err := Run(t.Context(), g, []string{"other"}, none)
	require.NoError(t, err, "a refused operation locks nothing")
	assert.Equal(t, 2, n)

	close(proceed)
	<-ended
	require.Eventually(t, func() bool {
		n, err := Run(t.Context(), g, []string{"other", "/path"}, none)
		return n == 2 && err == nil
	}, wait, tick)
	assert.Empty(t, g.Running())
}

func TestLaterCallWaitsForEarlierOperation(t *testing.T) {
	errTimeout := errors.New("timed out")
	g := &Group{Busy: errBusy, Wait: true, Cause: func(context.Context) error { return errTimeout }}
	started, proceed := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), g, []string{"a"}, func(_ context.Context, step *Step) (int, error) {
			step.Doing("connecting")
			close(started)
			<-proceed
			return 1, nil
		})
		first <- err
	}()
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(context.Context, *Step) (int, error) { panic("called during the first operation") }
	_, err := Run(ctx, g, []string{"a"}, never)
	require.ErrorIs(t, err, errBusy)
	require.ErrorIs(t, err, errTimeout)
	require.ErrorContains(t, err, "connecting")

	second := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), g, []string{"b", "a"}, func(context.Context, *Step) (int, error) {
			select {
			case <-proceed:
				return 2, nil
			default:
				return 0, errors.New("called during the first operation")
			}
		})
		second <- err
	}()
	close(proceed)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	assert.Empty(t, g.Running())
}

// If an operation reports an error when its context ends, Run returns that error.
func TestRunReturnsTheOperationError(t *testing.T) {
	g := &Group{Busy: errBusy}
	ctx, cancel := context.WithCancel(t.Context())
	errOwn := errors.New("the target does not respond")
	_, err := Run(ctx, g, []string{"a"}, func(ctx context.Context, _ *Step) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, errOwn
	})
	assert.ErrorIs(t, err, errOwn)
}

func TestHangingQueryIsNotRepeated(t *testing.T) {
	g := &Group{}
	calls, proceed := make(chan struct{}, 10), make(chan struct{})
	hang := func() (int, error) { calls <- struct{}{}; <-proceed; return 7, nil }
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Share(ctx, g, "statfs /x", hang)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "statfs /x: no response")
	}
	<-calls
	assert.Empty(t, calls)
	close(proceed)
	require.Eventually(t, func() bool {
		n, err := Share(t.Context(), g, "statfs /x", func() (int, error) { return 8, nil })
		return n == 8 && err == nil
	}, wait, tick)
}

func TestNewStepIsNamedStarting(t *testing.T) {
	assert.Equal(t, "starting", new(Step).String())
}
