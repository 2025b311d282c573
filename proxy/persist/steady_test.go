package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// between has f called after each answer about a subsystem.
func (w *world) between(subsystem string, f func()) {
	inner := w.target.target
	w.open(func(o *Options) {
		o.Target = func(ctx context.Context) (Target, error) {
			t, err := inner(ctx)
			ask := t.Ask
			t.Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
				text, err := ask(ctx, method, params)
				if params["name"] == subsystem {
					f()
				}
				return text, err
			}
			return t, err
		}
	})
}

// change makes a volume and exports it, which two subsystems tell of.
func (w *world) change(n int) {
	w.target.set("bdev", optionsCall, keyCall, fmt.Sprintf(`{"method":"bdev_null_create","params":{"name":"n%d"}}`, n), examineCall)
	w.target.set("nvmf", transportCall, subsystemCall(fmt.Sprint("nqn.n", n)))
}

// What is saved was there at one moment, whatever changes while it is read.
func TestSavedPartsFitTogether(t *testing.T) {
	for _, changed := range []string{"bdev", "nvmf", "keyring"} {
		w := newWorld(t)
		n := 0
		w.between(changed, func() {
			if n < 3 {
				n++
				w.change(n)
			}
		})
		w.save()
		assert.Equal(t, []string{"nqn.n3"}, w.knows(Current))
		assert.Contains(t, string(w.load(Current).Subsystems[1].Calls[2]), `"n3"`)
	}
}

// Changes that never end wait for a moment, so that they are saved at last.
func TestChangesWaitForAReading(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.between("bdev", func() {
		if w.saver.changesWait.Load() == nil { // which a call would have waited for
			n++
			w.change(n)
		}
	})
	w.save()
	assert.Equal(t, []string{fmt.Sprint("nqn.n", n)}, w.knows(Current))
	assert.Nil(t, w.saver.changesWait.Load())

	release := w.saver.holdChanges()
	waited := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.saver.Before(ctx); close(waited) }()
	select {
	case <-waited:
		require.Fail(t, "a change does not wait for the reading")
	default:
	}
	release()
	<-waited
	cancel()
}

// Who changes it behind the proxy's back, without end, has the old file stay.
func TestUnsteadyConfigurationIsNotSaved(t *testing.T) {
	w := newWorld(t)
	w.save()
	n := 0
	w.between("bdev", func() { n++; w.change(n) })
	require.ErrorIs(t, w.saver.Save(t.Context(), false), errUnsteady)
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	assert.True(t, w.saver.Status().Failed)
}
