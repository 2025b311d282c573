package persist

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After a restart of the target, the proxy compares the target's configuration with the saved one
// before it sends the first call. Otherwise, an object that this call removes would count as
// missing.
func TestTargetIsComparedBeforeTheFirstCall(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.restart("p2", populated()) // the target loaded a file (-c)
	w.saver.Before(t.Context(), false)
	w.target.set("nvmf", transportCall, subsystemCall("nqn.b"), listenerCall("nqn.b"))
	w.saver.Changed("nvmf_delete_subsystem", map[string]any{"nqn": "nqn.a"})
	w.save()
	assert.Equal(t, []string{"nqn.b"}, w.knows(Current))
	assert.NotContains(t, w.files(), Held)
	reads := w.target.reads
	w.saver.Before(t.Context(), false)
	assert.Equal(t, reads, w.target.reads, "each process is compared only once")
}

// If a target does not return its configuration, calls wait only briefly.
func TestWaitForComparisonIsLimited(t *testing.T) {
	w := newWorld(t)
	w.saver.exclusive <- struct{}{} // a save hangs
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.saver.Before(ctx, false)
	require.ErrorIs(t, w.saver.Save(ctx, false), context.Canceled)
	<-w.saver.exclusive
	w.target.fail[""] = errors.New("startup state")
	reads := w.target.reads
	for range 10 {
		w.saver.Before(t.Context(), false)
	}
	assert.LessOrEqual(t, w.target.reads-reads, 1, "later calls do not try to read the configuration again")
}

// If no target is running when the saver tries to compare its configuration with the saved one, the
// configuration of the next target is compared as soon as it starts.
func TestNewTargetProcessIsComparedImmediately(t *testing.T) {
	w := newWorld(t)
	w.saver.opts.Retry = time.Hour
	w.save()
	for name, away := range map[string]string{"away": "", "dying": "p-dying"} {
		t.Run(name, func(t *testing.T) {
			w.target.restart(away, empty())
			w.target.mu.Lock()
			w.target.fail[""] = errors.New("gone")
			w.target.mu.Unlock()
			w.saver.Before(t.Context(), false)
			w.target.restart("p-after-"+name, populated())
			w.target.mu.Lock()
			delete(w.target.fail, "")
			w.target.mu.Unlock()
			w.saver.Before(t.Context(), false)
			assert.True(t, w.saver.processCompared())
		})
	}
}
