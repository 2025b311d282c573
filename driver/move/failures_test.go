package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// devices returns two open devices. The copy is larger than the original, contains other data, and
// has data beyond the original's end.
func devices(t *testing.T, fromFlag, toFlag int) *moving {
	t.Helper()
	open := func(name string, contents []byte, flag int) *device {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, contents, 0o600))
		d, err := openDevice(path, flag)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, d.Close()) })
		return d
	}
	original := random()[:chunkBytes+3*markBytes]
	clear(original[chunkBytes:])
	m := &moving{from: open("original", original, fromFlag), to: open("copy", bytes.Repeat([]byte("x"), chunkBytes+5*markBytes), toFlag), marked: true}
	m.zeros = make([]bool, 2)
	m.zeros[1] = true
	return m
}

// If a read, write or flush fails on either device, or if the context ends, the step of the copy
// fails.
func TestFailedDeviceFailsTheStep(t *testing.T) {
	const unreadable, readOnly = os.O_WRONLY, os.O_RDONLY
	steps := map[string]func(ctx context.Context, m *moving) error{
		"copy":        func(ctx context.Context, m *moving) error { return m.differing(ctx) },
		"clear":       func(ctx context.Context, m *moving) error { return m.clearStale(ctx) },
		"verify":      func(ctx context.Context, m *moving) error { _, err := m.verify(ctx); return err },
		"examine":     func(_ context.Context, m *moving) error { _, _, err := examine(m.to, "original", true); return err },
		"first block": func(_ context.Context, m *moving) error { return end(m.to, m.from) },
		"mark":        func(_ context.Context, m *moving) error { return m.to.setFirst(markOf("original", "")) },
	}
	for name, flags := range map[string]struct {
		from, to int
		fail     []string
	}{
		"unreadable original": {unreadable, os.O_RDWR, []string{"copy", "verify", "first block"}},
		"unreadable copy":     {os.O_RDONLY, unreadable, []string{"copy", "clear", "verify", "examine", "first block"}},
		"read-only copy":      {os.O_RDONLY, readOnly, []string{"copy", "clear", "first block", "mark"}},
	} {
		for _, step := range flags.fail {
			var failed *fs.PathError
			err := steps[step](t.Context(), devices(t, flags.from, flags.to))
			assert.ErrorAs(t, err, &failed, "%s: %s", name, step)
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	for _, step := range []string{"copy", "clear", "verify"} {
		assert.ErrorIs(t, steps[step](ctx, devices(t, os.O_RDONLY, os.O_RDWR)), stopped, step)
	}
}

// If a copy contains data where the original has none, or beyond the original's end, it fails
// verification until that data is cleared.
func TestDataBeyondTheOriginalIsCleared(t *testing.T) {
	m := devices(t, os.O_RDONLY, os.O_RDWR)
	require.NoError(t, m.differing(t.Context()))
	_, err := m.verify(t.Context())
	require.ErrorIs(t, err, ErrDiffers)
	require.ErrorContains(t, err, "which the original does not have")
	require.NoError(t, m.clearStale(t.Context()))
	_, err = m.verify(t.Context())
	require.NoError(t, err)
	written := m.written.Load()
	require.NoError(t, m.clearStale(t.Context()))
	assert.Equal(t, written, m.written.Load(), "nothing is left to clear")
}

// Each call of a command to the controller or the connector fails once. The command reports the
// failure, the original keeps its data, and the repeated command succeeds.
func TestFailedCallFailsTheCommand(t *testing.T) {
	commands := map[string]struct {
		prepare func(f *farm)
		do      func(f *farm) error
		// leftOver is the number of final calls that only delete the snapshot that Prepare took.
		// Failures of these calls are only logged.
		leftOver int
	}{
		"keep": {
			func(f *farm) { _, err := f.mover().Copy(f.t.Context(), original, nil, nil); require.NoError(f.t, err) },
			func(f *farm) error { return f.mover().Keep(f.t.Context(), original) }, 1,
		},
		"delete the original": {
			func(f *farm) { _, err := f.mover().Copy(f.t.Context(), original, nil, nil); require.NoError(f.t, err) },
			func(f *farm) error { return f.mover().DeleteOriginal(f.t.Context(), original, copied, nil) }, 1,
		},
		"prepare": {
			func(f *farm) { f.node[original.String()] = worker },
			func(f *farm) error { _, err := f.mover().Prepare(f.t.Context(), original, nil, nil); return err }, 0,
		},
	}
	for name, c := range commands {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				f := preparable(t)
				delete(f.node, original.String())
				want := f.contents(original)
				c.prepare(f)
				f.calls, f.failAt = 0, at
				err := c.do(f)
				where := fmt.Sprintf("call %d of %d", at, f.calls)
				if f.calls < at {
					require.NoError(t, err)
					require.Greater(t, at, c.leftOver+1)
					return
				}
				if at <= f.calls-c.leftOver {
					require.ErrorIs(t, err, errInjected, where)
				}
				if f.named[original.String()] != "" {
					assert.True(t, bytes.Equal(want, f.contents(original)), where)
				} else {
					assert.True(t, bytes.Equal(want, f.contents(copied)), where)
				}
			}
		})
	}
}

// A query is retried a few times, with a pause before each retry. It is not retried after the
// command was canceled.
func TestQueriesAreRetriedUntilTheCommandIsCanceled(t *testing.T) {
	failed := errors.New("the controller is unavailable")
	calls := 0
	ask := func() error { calls++; return failed }
	m := Mover{Pause: time.Nanosecond}
	require.ErrorIs(t, m.retry(t.Context(), ask), failed)
	assert.Equal(t, 4, calls)

	calls = 0
	require.NoError(t, m.retry(t.Context(), func() error {
		if calls == 2 {
			return nil
		}
		return ask()
	}))
	assert.Equal(t, 2, calls)

	calls = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Mover{Pause: time.Hour}.retry(ctx, ask), failed)
	assert.Equal(t, 1, calls)
}
