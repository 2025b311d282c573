package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// An operation is a call of a mirror. Tests can make each request of the call fail.
type operation struct {
	name    string
	prepare func(t *testing.T, w *world, m *Mirror)
	do      func(ctx context.Context, w *world, m *Mirror) error
	// despite contains the requests that may fail without failing the operation.
	despite []string
}

func start(ctx context.Context, _ *world, m *Mirror) error {
	_, err := m.Start(ctx)
	return err
}

func drop(t *testing.T, _ *world, m *Mirror) { require.NoError(t, m.Drop(t.Context(), 1)) }

func add(t *testing.T, w *world, m *Mirror) {
	drop(t, w, m)
	require.NoError(t, m.Add(t.Context(), 1))
}

func rebuildAll(t *testing.T, w *world, m *Mirror) {
	add(t, w, m)
	w.synced = testSize / RegionBytes
}

// dies kills the plugin before the first step whose description contains text, while the plugin
// performs an operation.
func dies(text string, prepare func(*testing.T, *world, *Mirror), do func(context.Context, *world, *Mirror) error) func(*testing.T, *world, *Mirror) {
	return func(t *testing.T, w *world, m *Mirror) {
		prepare(t, w, m)
		w.diesAt = text
		require.ErrorIs(t, do(t.Context(), w, m), errCrash)
		w.diesAt = ""
	}
}

func nothing(*testing.T, *world, *Mirror) {}

// A running mirror identifies its replicas by their device numbers, which works if one of the
// replicas is connected.
var either = []string{"find a device", "number of a disk"}

// A mirror starts even if a replica cannot be read. The caller may have to drop that replica.
var unread = append([]string{"open a disk", "read a disk", "size of a disk", "number of an open disk"}, either...)

func operations() []operation {
	retry := func(ctx context.Context, _ *world, m *Mirror) error { return m.Retry(ctx) }
	dropIt := func(ctx context.Context, _ *world, m *Mirror) error { return m.Drop(ctx, 1) }
	complete := func(ctx context.Context, _ *world, m *Mirror) error {
		done, err := m.Complete(ctx)
		if err == nil && !done {
			return errors.New("the rebuild is not complete")
		}
		return err
	}
	// If it is unknown whether the kernel has failed writes, the log is not trusted.
	unknown := append([]string{"look up a suspended device"}, either...)
	return []operation{
		{"start", nothing, start, nil},
		{"start again", nothing, start, unread},
		{"start without a replica", drop, start, unread},
		{"start during a rebuild", add, start, unread},
		{"start after a rebuild", dies("load "+mirrorDevice, rebuildAll, complete), start, unread},
		{"start after an interrupted swap", dies("resume "+mirrorDevice, add, retry), start, unread},
		{"start after a load", dies("suspend "+mirrorDevice, add, retry), start, unread},
		{"start after an interrupted drop", dies("release", nothing, dropIt), start, append([]string{"look up a suspended device"}, unread...)},
		{"start without a replica after an interrupted drop", dies("superblock", nothing, dropIt), start, unread},
		{"drop", nothing, dropIt, unknown},
		{"drop during a rebuild", add, dropIt, append([]string{"queue a read"}, unknown...)},
		{"add", drop, func(ctx context.Context, _ *world, m *Mirror) error { return m.Add(ctx, 1) }, either},
		{"retry", nothing, retry, either},
		{"retry without a replica", drop, retry, either},
		{"retry during a rebuild", add, retry, either},
		{"retry after both failed", func(_ *testing.T, w *world, _ *Mirror) { w.mapped[mirrorDevice].health = "DD" }, retry, append([]string{"queue a read"}, unknown...)},
		{"complete", rebuildAll, complete, either},
		{"status", add, func(ctx context.Context, _ *world, m *Mirror) error { _, err := m.Status(ctx); return err }, either},
		{"local status", add, func(_ context.Context, _ *world, m *Mirror) error { _, err := m.Local(); return err }, nil},
		{"stop", add, func(ctx context.Context, w *world, m *Mirror) error {
			err := m.Stop(ctx)
			if err == nil && !w.witness.Clean {
				return errors.New("the stop is not recorded")
			}
			return err
		}, nil},
	}
}

// TestFailedRequestFailsTheOperation makes each request to the kernel, the disks and the servers
// fail once. The operation must fail unless it does not need the response. The next operation of
// the mirror completes the interrupted one.
func TestFailedRequestFailsTheOperation(t *testing.T) {
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			for n := 1; ; n++ {
				w := newWorld(t)
				m := w.plugin()
				if op.name != "start" {
					require.NoError(t, start(t.Context(), w, m))
				}
				op.prepare(t, w, m)
				w.requests, w.failAt = 0, n
				err := op.do(t.Context(), w, m)
				if w.failAt = 0; w.failed == "" {
					require.NoError(t, err)
					require.Greater(t, n, 1)
					return
				}
				where := fmt.Sprintf("request %d: %s", n, w.failed)
				// A new volume needs both replicas, but can start with one replica after its
				// creation.
				if !slices.Contains(op.despite, w.failed) && !(op.name == "start" && w.witness.Created && slices.Contains(unread, w.failed)) {
					assert.Error(t, err, where)
				}
				if op.name == "drop" && w.failed == "look up a suspended device" {
					assert.Zero(t, w.witness.Logged, where)
				}
				if err != nil {
					assert.NoError(t, start(t.Context(), w, m), where)
				}
				if d := w.mapped[mirrorDevice]; d != nil && d.health != "" { // nothing has changed yet
					assert.NoError(t, op.do(t.Context(), w, m), where)
				}
				w.restart(false)
				assert.NoError(t, recovered(t.Context(), w), where)
			}
		})
	}
}

// If any step of Abandon fails, Abandon returns an error, and the I/O of the mirror stays blocked
// until Abandon is called again.
func TestFailedAbandonCanBeRepeated(t *testing.T) {
	for n := 1; ; n++ {
		w, m := started(t)
		w.witness = w.witness.Publish("node2")
		w.witness.InSync = replica.Set(0) // the fake accepts only releases of unlisted replicas
		w.requests, w.failAt = 0, n
		err := m.Abandon(t.Context())
		if w.failed == "" {
			require.NoError(t, err)
			require.Greater(t, n, 4)
			return
		}
		require.ErrorIs(t, err, errInjected, w.failed)
		require.NoError(t, m.Abandon(t.Context()), w.failed)
		assert.Equal(t, "error", w.mapped[mirrorDevice].active.kind, w.failed)
	}
}
