package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	versionMethod = "spdk_get_version"
	// phaseMethod distinguishes startup from runtime. Every release since v23.01 supports it, but
	// only at runtime; at startup, SPDK responds with error -1. The method changes nothing, its
	// response is short, and SPDK responds on the thread that reads the socket.
	phaseMethod = "notify_get_types"
)

// Watch waits for one of these times between two probes, plus or minus a fifth.
const (
	probeInterval     = 5 * time.Second
	probeIntervalDown = time.Second
	// probeAfterClose is the minimum time between probes of a target that closes each connection.
	probeAfterClose = 100 * time.Millisecond
)

// A probe queries the target over a connection of its own, so that a busy pool of connections does
// not look like a dead target. Only one query runs at a time.
type probe struct {
	socket  *spdkrpc.Socket // nil if there is no connection
	gone    <-chan struct{}
	release rpcschema.Release
	// pending is a query to which SPDK did not respond in time. If SPDK is working, it will respond
	// later. Until then, no other query is sent.
	pending *spdkrpc.Pending
}

// Probe queries the target and returns its state. The only possible error is ctx.Err().
func (t *Target) Probe(ctx context.Context) (State, error) {
	done := t.startProbe()
	select {
	case r := <-done:
		return r.Val.(probeResult).State, nil
	case <-ctx.Done():
		return t.State(), ctx.Err()
	}
}

// A probeResult contains the state found by a probe, and the time when the probe began.
type probeResult struct {
	State
	began time.Time
}

// startProbe begins a probe, or joins a running one.
func (t *Target) startProbe() <-chan singleflight.Result {
	return t.flights.DoChan("probe", func() (any, error) {
		began := time.Now()
		return probeResult{t.runProbe(), began}, nil
	})
}

// timedProbe measures how long a probe takes. If a probe is already running, for example for a
// request to /readyz, timedProbe waits for it and then measures another, because it could measure
// only part of the running probe.
func (t *Target) timedProbe() time.Duration {
	for since := time.Now(); ; {
		if result := (<-t.startProbe()).Val.(probeResult); !result.began.Before(since) {
			return time.Since(result.began)
		}
	}
}

// Watch probes the target until t is closed: every few seconds, and immediately when the probe's
// connection closes. Therefore, the proxy detects a restart of the target even without calls.
func (t *Target) Watch() {
	for {
		state, _ := t.Probe(context.Background())
		wait, gone := probeIntervalDown, (<-chan struct{})(nil)
		if state.Phase == Runtime && state.Examination == ExaminationUnknown {
			t.examine()
		}
		if state.Phase != Unreachable {
			wait, gone = probeInterval, t.probeGone()
		}
		jitter := time.Duration(rand.Int64N(int64(wait/5)*2)) - wait/5
		select {
		case <-time.After(wait + jitter):
		case <-gone:
			select {
			case <-time.After(probeAfterClose):
			case <-t.stopped:
				return
			}
		case <-t.stopped:
			return
		}
	}
}

func (t *Target) probeGone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.probe.gone
}

// runProbe queries the target over the probe's connection, or over a new connection.
func (t *Target) runProbe() State {
	ctx, cancel := context.WithTimeout(context.Background(), t.connectWait)
	defer cancel()
	t.mu.Lock()
	p, closed := t.probe, t.closed
	t.mu.Unlock()
	if closed {
		return t.State()
	}
	connected := false
	if p.socket == nil || broken(p.gone) {
		p.close()
		p = probe{}
		var err error
		if p.socket, p.gone, p.release, err = t.open(ctx); err != nil {
			t.keepProbe(probe{})
			return t.noteState(Unreachable, rpcschema.Release{}, false, err)
		}
		connected = true
	}
	phase, err := p.phase(ctx)
	if !t.keepProbe(p) {
		return t.State()
	}
	return t.noteState(phase, p.release, connected, err)
}

// keepProbe keeps the probe's connection for the next probe. If t has been closed in the meantime,
// it returns false.
func (t *Target) keepProbe(p probe) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		p.close()
		return false
	}
	t.probe = p
	return true
}

// phase asks the target for its phase.
func (p *probe) phase(ctx context.Context) (Phase, error) {
	if p.pending == nil {
		pending, err := p.socket.Start(ctx, phaseMethod, nil)
		if err != nil {
			return Unreachable, err
		}
		p.pending = &pending
	}
	err := p.pending.Wait(ctx, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return Unreachable, fmt.Errorf("the target accepts connections but does not respond: %w", err)
	}
	p.pending = nil
	var answer *spdkrpc.Error
	switch {
	case err == nil:
		return Runtime, nil
	case errors.As(err, &answer) && answer.Code == jsonrpc.CodeWrongState:
		return Startup, nil
	case errors.As(err, &answer) && answer.Code != 0:
		return Runtime, nil // the target responds, even if its option -R excludes this method
	}
	return Unreachable, err
}

func (p *probe) close() {
	if p.socket != nil {
		_ = p.socket.Close() // nothing can be done if closing a UNIX socket fails
	}
}

func broken(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}
