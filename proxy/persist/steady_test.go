package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// between makes the target call f after each response about the subsystem.
func (w *world) between(subsystem string, f func()) {
	w.answering(func(_ string, answer func()) { answer() }, subsystem, f)
}

// answering is like between, but when decides when each response is sent.
func (w *world) answering(when func(subsystem string, answer func()), subsystem string, f func()) {
	inner := w.target.target
	w.open(func(o *Options) {
		o.Target = func(ctx context.Context) (Target, error) {
			t, err := inner(ctx)
			ask := t.Ask
			t.Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
				name, _ := params["name"].(string)
				var text json.RawMessage
				var err error
				when(name, func() {
					if text, err = ask(ctx, method, params); name == subsystem {
						f()
					}
				})
				return text, err
			}
			return t, err
		}
	})
}

// change creates and exports a volume, which changes the configuration of two subsystems.
func (w *world) change(n int) {
	w.target.set("bdev", optionsCall, keyCall, fmt.Sprintf(`{"method":"bdev_null_create","params":{"name":"n%d"}}`, n), examineCall)
	w.target.set("nvmf", transportCall, subsystemCall(fmt.Sprint("nqn.n", n)))
}

// inTurn makes the subsystems respond in this order in each read.
func inTurn(order ...string) func(subsystem string, answer func()) {
	turn, next := sync.NewCond(new(sync.Mutex)), 0
	return func(subsystem string, answer func()) {
		if !slices.Contains(order, subsystem) {
			answer()
			return
		}
		turn.L.Lock()
		defer turn.L.Unlock()
		for order[next%len(order)] != subsystem {
			turn.Wait()
		}
		answer()
		next++
		turn.Broadcast()
	}
}

// The saved configuration existed on the target at some time, even if there were changes during the
// reads. It may lack the last change, because two equal reads may precede that change.
func TestSavedConfigurationIsConsistent(t *testing.T) {
	for _, c := range []struct {
		changed string
		order   []string // order in which reads return the two changed parts
	}{
		{"bdev", nil}, {"nvmf", nil}, {"keyring", nil},
		{"bdev", []string{"bdev", "nvmf"}}, {"nvmf", []string{"nvmf", "bdev"}}, {"keyring", []string{"bdev", "keyring", "nvmf"}},
	} {
		t.Run(fmt.Sprint(c.changed, c.order), func(t *testing.T) {
			w := newWorld(t)
			n := 0
			w.answering(inTurn(c.order...), c.changed, func() {
				if n < 3 {
					n++
					w.change(n)
				}
			})
			w.save()
			exported := w.knows(Current)
			require.Len(t, exported, 1)
			assert.Contains(t, []string{"nqn.n1", "nqn.n2", "nqn.n3"}, exported[0])
			name := strings.TrimPrefix(exported[0], "nqn.")
			assert.Contains(t, string(w.load(Current).Subsystems[1].Calls[2]), strconv.Quote(name), "the volume of the exported namespace")
		})
	}
}

// If calls keep changing the configuration, the saver briefly delays them so that a save can
// succeed.
func TestChangesWaitForARead(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.between("bdev", func() {
		if w.saver.changesWait.Load() == nil { // a call would have waited
			n++
			w.change(n)
		}
	})
	w.save()
	assert.Equal(t, []string{fmt.Sprint("nqn.n", n)}, w.knows(Current))
	assert.Nil(t, w.saver.changesWait.Load())

	release := hold(&w.saver.changesWait)
	waited := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { w.saver.Before(ctx, false); close(waited) }()
	select {
	case <-waited:
		require.Fail(t, "a change does not wait for the read")
	default:
	}
	release()
	<-waited
	cancel()
}

// If another program keeps changing the configuration without using the proxy, the saver keeps the
// old file.
func TestConstantlyChangingConfigurationIsNotSaved(t *testing.T) {
	w := newWorld(t)
	w.save()
	n := 0
	w.between("bdev", func() { n++; w.change(n) })
	require.ErrorIs(t, w.saver.Save(t.Context(), false), errUnsteady)
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	assert.True(t, w.saver.Status().Failed)
}
