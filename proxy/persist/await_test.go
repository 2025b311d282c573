package persist

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

func TestConcurrentAwaitSavedCallsShareOneSave(t *testing.T) {
	w := newWorld(t)
	w.save()
	reads := w.target.reads
	w.saver.exclusive <- struct{}{} // a save is running
	var waiting sync.WaitGroup
	for range 50 {
		w.saver.Changed("nvmf_create_subsystem", params{"nqn": "nqn.c"})
		waiting.Go(func() { assert.NoError(t, w.saver.AwaitSaved(t.Context(), "p1")) })
	}
	w.target.set("nvmf", append(populated()["nvmf"], subsystemCall("nqn.c"))...)
	<-w.saver.exclusive
	waiting.Wait()
	assert.Len(t, w.knows(Current), 3)
	assert.LessOrEqual(t, w.target.reads-reads, 2*2, "the calls shared one save, or two")
	reads = w.target.reads
	require.NoError(t, w.saver.AwaitSaved(t.Context(), "p1"))
	assert.Equal(t, reads, w.target.reads, "everything is saved")

	w.open() // a new proxy does not know which changes its predecessor saved
	require.NoError(t, w.saver.AwaitSaved(t.Context(), "p1"))
	assert.Greater(t, w.target.reads, reads)
}

func TestAwaitSavedReportsFailures(t *testing.T) {
	var notSaved *NotSavedError
	fail := func(t *testing.T, w *world, process string) {
		t.Helper()
		w.saver.Changed("nvmf_subsystem_remove_host", params{"nqn": "nqn.a", "host": "host.1"})
		require.ErrorAs(t, w.saver.AwaitSaved(t.Context(), process), &notSaved)
		assert.NotContains(t, notSaved.Error(), w.dir)
	}
	t.Run("the disk is full", func(t *testing.T) {
		w := newWorld(t)
		w.save()
		w.target.set("nvmf")
		w.folder.disk = &failing{Path: directory.Path(w.dir), at: 1, crash: true}
		fail(t, w, "p1")
		w.folder.disk = directory.Path(w.dir)
		require.NoError(t, w.saver.AwaitSaved(t.Context(), "p1"), "a repetition")
	})
	t.Run("the target ended", func(t *testing.T) {
		w := newWorld(t)
		w.save()
		w.target.restart("p2", populated())
		fail(t, w, "p1")
		require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
		require.Error(t, w.saver.AwaitSaved(t.Context(), "p1"), "also later")
	})
	t.Run("the target may have ended before the file was written", func(t *testing.T) {
		w := newWorld(t)
		w.save()
		w.target.set("nvmf", transportCall, subsystemCall("nqn.b"))
		w.target.fail["spdk_get_version"] = errors.New("this process is gone")
		w.saver.Changed("nvmf_delete_subsystem", params{"nqn": "nqn.a"})
		require.ErrorAs(t, w.saver.AwaitSaved(t.Context(), "p1"), &notSaved)
		require.Error(t, w.saver.AwaitSaved(t.Context(), "p1"), "also later")
		delete(w.target.fail, "spdk_get_version")
		w.target.restart("p2", populated()) // it has loaded the previous file
		require.Error(t, w.saver.AwaitSaved(t.Context(), "p1"), "also later")
		require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
		assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current), "the target exports it again")
	})
	t.Run("another file was chosen", func(t *testing.T) {
		w := newWorld(t)
		w.save()
		w.target.set("nvmf", transportCall)
		w.saver.Changed("nvmf_delete_subsystem", params{"nqn": "nqn.a"})
		w.saver.Changed("nvmf_delete_subsystem", params{"nqn": "nqn.b"})
		w.save()
		previous, err := w.folder.previous()
		require.NoError(t, err)
		require.NoError(t, w.folder.Use(previous[0]))
		fail(t, w, "p1")
		assert.Contains(t, notSaved.Error(), "restart it, or drop the choice")
		require.NoError(t, w.saver.Save(t.Context(), true))
		require.NoError(t, w.saver.AwaitSaved(t.Context(), "p1"))
	})
	t.Run("the target does not respond", func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Wait = 10 * time.Millisecond })
		w.saver.exclusive <- struct{}{}
		fail(t, w, "p1")
	})
	t.Run("concurrent calls share one failed attempt", func(t *testing.T) {
		w := newWorld(t)
		w.save()
		w.target.fail["nvmf"] = errors.New("busy")
		reads := w.target.reads
		w.saver.exclusive <- struct{}{} // another save is running
		var waiting sync.WaitGroup
		for range 50 {
			w.saver.Changed("nvmf_delete_subsystem", params{"nqn": "nqn.a"})
		}
		for range 50 {
			waiting.Go(func() { assert.Error(t, w.saver.AwaitSaved(t.Context(), "p1")) })
		}
		time.Sleep(20 * time.Millisecond) // most calls are waiting by now; the others make their own attempts
		<-w.saver.exclusive
		waiting.Wait()
		assert.Less(t, w.target.reads-reads, 50)
	})
}
