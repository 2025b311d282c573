package persist

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.saver.Run(ctx, long) })
	return func() { cancel(); running.Wait() }
}

func quickly(o *Options) {
	o.After, o.AtLatest, o.Retry, o.Watch, o.Settle = time.Millisecond, 10*time.Millisecond, time.Millisecond, time.Millisecond, 50*time.Millisecond
}

func (w *world) eventually(condition func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, condition, long, time.Millisecond, what)
}

func (w *world) exists() bool {
	_, err := os.Stat(filepath.Join(w.dir, Current))
	return err == nil
}

func TestRunSavesChanges(t *testing.T) {
	w := newWorld(t, quickly)
	stop := w.run()
	defer stop()
	w.eventually(w.exists, "saved at the start, because earlier changes are unknown")

	w.target.set("nvmf", transportCall, subsystemCall("nqn.a"), subsystemCall("nqn.b"), listenerCall("nqn.a"), listenerCall("nqn.b"), subsystemCall("nqn.c"))
	w.saver.Changed("nvmf_create_subsystem", map[string]any{"nqn": "nqn.c"})
	w.eventually(func() bool { return len(w.knows(Current)) == 3 && !w.saver.Status().Pending }, "saved after a change")

	w.target.mu.Lock()
	w.target.down = os.ErrNotExist
	w.target.mu.Unlock()
	w.saver.Changed("nvmf_create_subsystem", map[string]any{"nqn": "nqn.d"})
	w.eventually(func() bool { return w.saver.Status().Failed }, "it keeps trying")
	w.target.restart("p2", empty())
	w.target.mu.Lock()
	w.target.down = nil
	w.target.mu.Unlock()
	w.eventually(func() bool { return len(w.saver.Status().Missing) > 0 }, "the new process is compared with the saved file")
	assert.Len(t, w.knows(Current), 3)

	w.target.restart("p3", populated())
	w.target.set("nvmf", transportCall, subsystemCall("nqn.a"), subsystemCall("nqn.b"), listenerCall("nqn.a"), listenerCall("nqn.b"), subsystemCall("nqn.c"))
	w.eventually(func() bool { return len(w.saver.Status().Missing) == 0 }, "a new process is noticed without a call")

	w.target.set("nvmf")
	w.saver.Changed("spdk_kill_instance", nil)
	w.eventually(func() bool { return len(w.knows(Current)) == 0 }, "a loss is accepted if the target keeps running")
}

func TestChangesInQuickSuccessionShareOneSave(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.After, o.AtLatest = time.Hour, 2*time.Hour })
	w.save()
	reads := w.target.reads
	for range 100 {
		w.saver.Changed("bdev_malloc_create", map[string]any{"name": "m"})
	}
	assert.InDelta(t, time.Hour, w.saver.due(), float64(time.Minute))
	assert.Equal(t, reads, w.target.reads)

	w.saver.mu.Lock()
	w.saver.first = time.Now().Add(-2 * time.Hour)
	w.saver.mu.Unlock()
	assert.Zero(t, w.saver.due(), "but not forever")

	w.saver.mu.Lock()
	w.saver.first, w.saver.cost = time.Now(), time.Hour
	w.saver.mu.Unlock()
	assert.Greater(t, w.saver.due(), 40*time.Hour, "a slow target is read less often")
}

func TestUnsavedChangesAreSavedAtTheEnd(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.After, o.AtLatest = time.Hour, 2*time.Hour })
	stop := w.run()
	w.eventually(func() bool { return w.exists() && !w.saver.Status().Pending }, "at the start")
	w.target.set("nvmf", transportCall, subsystemCall("nqn.a"), subsystemCall("nqn.b"), listenerCall("nqn.a"), listenerCall("nqn.b"), subsystemCall("nqn.c"))
	w.saver.Changed("nvmf_create_subsystem", map[string]any{"nqn": "nqn.c"})
	stop()
	assert.Len(t, w.knows(Current), 3)
}

func TestProcessAtIdentifiesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	_, err := ProcessAt(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	seen := map[string]bool{}
	for range 3 {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		process, err := ProcessAt(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o660)) // as the socket grant does
		again, err := ProcessAt(path)
		require.NoError(t, err)
		assert.Equal(t, process, again)
		assert.False(t, seen[process])
		seen[process] = true
		require.NoError(t, os.Remove(path))
	}
}

func TestOptionsHaveDefaultTimes(t *testing.T) {
	const s = time.Second
	for given, want := range map[[6]time.Duration][6]time.Duration{
		{}:                      {2 * s, 15 * s, s, 5 * s, 10 * s, 100 * s},
		{1, 2, 3, 4, 5, 6}:      {1, 2, 3, 4, 5, 6},
		{20 * s, 1, 3, 4, 5, 6}: {20 * s, 20 * s, 3, 4, 5, 6}, // AtLatest must not be less than After
	} {
		o := New(Options{Folder: &Folder{}, After: given[0], AtLatest: given[1], Retry: given[2], Watch: given[3], Wait: given[4], Settle: given[5]}).opts
		assert.Equal(t, want, [6]time.Duration{o.After, o.AtLatest, o.Retry, o.Watch, o.Wait, o.Settle})
	}
}
