package target

import (
	"errors"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Phase is a stage in the life of a target process.
type Phase string

// These are the phases of a target process.
const (
	Unreachable Phase = "unreachable" // no target responds on the socket
	Startup     Phase = "startup"     // waiting for framework_start_init (--wait-for-rpc)
	Runtime     Phase = "runtime"     // serving I/O
)

// A State is the result of the last probe of the target.
type State struct {
	Phase Phase
	// release that the target last reported; zero if it has never responded
	Release rpcschema.Release
	Since   time.Time // when the phase began
	// Reconnects is how often the target responded again after its connection had closed, which
	// means that it was restarted.
	Reconnects    int
	Err           error // why the target is unreachable
	UntrustedPeer bool  // an untrusted user is listening at the socket
	// Examination states which bdevs the current process examines. ExaminationSince is when the
	// proxy first received this response; restarts with the same option do not change it.
	Examination      Examination
	ExaminationSince time.Time
}

var errNotProbed = errors.New("the target has not been probed yet")

// State returns the result of the last probe. While Watch is running, it is at most a few seconds
// old.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// noteState records the result of a probe, and logs changes. No other function logs changes of the
// State.
func (t *Target) noteState(phase Phase, release rpcschema.Release, connected bool, err error) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.state
	}
	before := t.state
	if phase != before.Phase {
		t.state.Since = time.Now()
	}
	if connected && t.found || phase == Unreachable {
		t.state.Examination = ExaminationUnknown // this may be a different process
	}
	if connected {
		if t.found {
			t.state.Reconnects++
		}
		t.found = true
	}
	t.state.Phase, t.state.Err, t.state.UntrustedPeer = phase, err, errors.Is(err, errUntrustedPeer)
	if phase != Unreachable {
		t.state.Release = release
	}
	attrs := []any{slog.String("socket", t.config.Socket), slog.String("release", t.state.Release.String()), slog.Int("reconnects", t.state.Reconnects)}
	switch {
	case phase == Unreachable && before.Phase == Unreachable && before.Err != nil && err != nil && before.Err.Error() == err.Error(): // unchanged, for the same reason
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
