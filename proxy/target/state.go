package target

import (
	"errors"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Phase is what a target is doing.
type Phase string

// The phases.
const (
	Unreachable Phase = "unreachable" // nobody answers at the socket
	Startup     Phase = "startup"     // it was started with --wait-for-rpc, and waits for framework_start_init
	Runtime     Phase = "runtime"     // it serves
)

// A State is what is known of the target since it was last looked at.
type State struct {
	Phase   Phase
	Release rpcschema.Release // of the target that answered last; zero before
	Since   time.Time         // of the phase
	// Reconnects counts how often the target was found again after its connection
	// had ended: it was restarted.
	Reconnects int
	Err        error // why it is unreachable
	Stranger   bool  // somebody listens at the socket who must not
}

var errNotAsked = errors.New("it was not asked yet")

// State is the target's as it was last seen; with Watch, a few seconds ago at most.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// seen notes what a look at the target has found. Changes are logged, here and
// nowhere else.
func (t *Target) seen(phase Phase, release rpcschema.Release, connected bool, err error) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.state
	}
	before := t.state
	if phase != before.Phase {
		t.state.Since = time.Now()
	}
	if connected {
		if t.found {
			t.state.Reconnects++
		}
		t.found = true
	}
	t.state.Phase, t.state.Err, t.state.Stranger = phase, err, errors.Is(err, errStranger)
	if phase != Unreachable {
		t.state.Release = release
	}
	attrs := []any{slog.String("socket", t.config.Socket), slog.String("release", t.state.Release.String()), slog.Int("reconnects", t.state.Reconnects)}
	switch {
	case phase == Unreachable && before.Phase == Unreachable && before.Err != nil && err != nil && before.Err.Error() == err.Error(): // still, and why
	case phase == Unreachable:
		t.config.Log.Warn("target unreachable", append(attrs, slog.Any("error", err))...)
	case phase == before.Phase && !connected:
	case phase == Startup:
		t.config.Log.Warn("target waits for framework_start_init", attrs...)
	default:
		t.config.Log.Info("target serves", attrs...)
	}
	return t.state
}
