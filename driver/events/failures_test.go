package events

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

// A namespace that accepts no Events does not prevent Events in other namespaces. Its Events are
// written when it accepts them again.
func TestRefusingNamespaceDoesNotStopOthers(t *testing.T) {
	for _, kind := range []error{kubernetes.ErrForbidden, kubernetes.ErrNotFound, kubernetes.ErrInvalid, errors.New("HTTP status 500: failed calling webhook")} {
		w := newWorld()
		r := w.reporter()
		for n := range 20 {
			w.set(fmt.Sprintf("broken/pvc-%d", n), "LvstoreMissing")
			w.set(fmt.Sprintf("apps/pvc-%d", n), "LvstoreFull")
		}
		attempts := 0
		w.refuse = func(e kubernetes.Event) error {
			if e.Claim.Namespace == "broken" {
				attempts++
				return kind
			}
			return nil
		}
		require.NoError(t, r.round(t.Context()))
		require.ErrorIs(t, r.round(t.Context()), kind)
		assert.Len(t, w.order, 20)
		assert.Equal(t, 1, attempts)
		w.set("broken/pvc-0", "")
		w.refuse = nil
		assert.Len(t, w.pass(t, 4*time.Minute, r), 19, "a problem that was never reported is not over")
		assert.Empty(t, w.pass(t, 2*time.Minute, r))
	}
}

// However many volumes are in namespaces that accept no Events, each other namespace is reached
// soon, and so is a namespace that accepts Events again.
func TestRefusingNamespacesComeLast(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	for n := range 8 {
		for bad := range 4 {
			w.set(fmt.Sprintf("bad%d/a-%d", bad, n), "LvstoreMissing")
		}
	}
	w.set("good/z", "VolumeMissing")
	w.set("mid/y", "VolumeMissing")
	recovered := false
	w.refuse = func(e kubernetes.Event) error {
		if strings.HasPrefix(e.Claim.Namespace, "bad") || e.Claim.Namespace == "mid" && !recovered {
			return errors.New("HTTP status 500: failed calling webhook")
		}
		return nil
	}
	rounds := func(n int) (written []string) {
		before := len(w.order)
		for range n {
			_ = r.round(t.Context())
			w.now = w.now.Add(2 * time.Minute)
		}
		for _, e := range w.order[before:] {
			written = append(written, e.Claim.Name)
		}
		return written
	}
	assert.Equal(t, []string{"good/z"}, rounds(5))
	recovered = true
	assert.Contains(t, rounds(3), "mid/y")
}

// If the API server does not respond, a round ends after a few attempts, and the Events are written
// later.
func TestEventsAreWrittenAfterAnOutage(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	for n := range 20 {
		w.set(fmt.Sprintf("ns%d/pvc", n), "LvstoreMissing")
	}
	attempts, broken := 0, errors.New("no response")
	w.refuse = func(kubernetes.Event) error { attempts++; return broken }
	require.NoError(t, r.round(t.Context()))
	require.ErrorIs(t, r.round(t.Context()), broken)
	assert.Equal(t, mostFailures, attempts)
	w.refuse = nil
	require.NoError(t, r.round(t.Context()))
	assert.Len(t, w.order, 20)
}

// If some targets cannot be read, Events about the other targets' volumes are written, and the
// reason is logged once.
func TestUnreadableTargetIsLogged(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	var log strings.Builder
	r.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.set("pvc-1", "LvstoreFull")
	w.err = errors.New("target t1: wrong password")
	for range 3 {
		r.logFailure(t.Context(), r.round(t.Context()))
	}
	assert.Len(t, w.order, 1)
	assert.Equal(t, 1, strings.Count(log.String(), "wrong password"), log.String())
}
