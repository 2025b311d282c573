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
	// phaseMethod tells startup from runtime: since v23.01 it is known in both, and
	// allowed at runtime only, so that SPDK answers -1 before it is looked at. It has
	// a short answer, changes nothing, and asks nobody but the thread that reads the
	// socket.
	phaseMethod = "notify_get_types"
)

// How long Watch waits from one look to the next, give or take a fifth.
const (
	probeAgain       = 5 * time.Second
	probeAgainIfAway = time.Second
	// probeAgainAfterClose bounds how often a target is looked at that ends each
	// connection.
	probeAgainAfterClose = 100 * time.Millisecond
)

// A probe looks at the target over a connection of its own, so that a full pool
// does not look like a dead target. One look is taken at a time.
type probe struct {
	socket  *spdkrpc.Socket // nil: none
	gone    <-chan struct{}
	release rpcschema.Release
	// pending is a question that was not answered in time. SPDK answers it in the
	// end, if it lives; others are not heaped upon it.
	pending *spdkrpc.Pending
}

// Probe looks at the target and tells its state. The error is ctx's.
func (t *Target) Probe(ctx context.Context) (State, error) {
	done := t.startProbe()
	select {
	case r := <-done:
		return r.Val.(probed).State, nil
	case <-ctx.Done():
		return t.State(), ctx.Err()
	}
}

// A probed is what a probe has found, and when it began.
type probed struct {
	State
	began time.Time
}

// startProbe begins a look, or joins the one that is under way.
func (t *Target) startProbe() <-chan singleflight.Result {
	return t.flights.DoChan("probe", func() (any, error) {
		began := time.Now()
		return probed{t.runProbe(), began}, nil
	})
}

// timedProbe measures how long a look takes that begins now: what joined one that
// began earlier, as anybody may cause by /readyz, would seem quicker than it is.
func (t *Target) timedProbe() time.Duration {
	for since := time.Now(); ; {
		if seen := (<-t.startProbe()).Val.(probed); !seen.began.Before(since) {
			return time.Since(seen.began)
		}
	}
}

// Watch looks at the target again and again until it is closed: every few
// seconds, and at once when its connection ends. So a restarted target is
// noticed although nobody calls.
func (t *Target) Watch() {
	for {
		state, _ := t.Probe(context.Background())
		wait, gone := probeAgainIfAway, (<-chan struct{})(nil)
		if state.Phase != Unreachable {
			wait, gone = probeAgain, t.probeGone()
		}
		jitter := time.Duration(rand.Int64N(int64(wait/5)*2)) - wait/5
		select {
		case <-time.After(wait + jitter):
		case <-gone:
			select {
			case <-time.After(probeAgainAfterClose):
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

// runProbe asks the target over the probe's connection, or over a new one.
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
			return t.seen(Unreachable, rpcschema.Release{}, false, err)
		}
		connected = true
	}
	phase, err := p.ask(ctx)
	if !t.keepProbe(p) {
		return t.State()
	}
	return t.seen(phase, p.release, connected, err)
}

// keepProbe keeps the probe's connection for the next look, unless the target
// was closed meanwhile.
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

// ask learns the phase.
func (p *probe) ask(ctx context.Context) (Phase, error) {
	if p.pending == nil {
		pending, err := p.socket.Start(ctx, phaseMethod, nil)
		if err != nil {
			return Unreachable, err
		}
		p.pending = &pending
	}
	err := p.pending.Wait(ctx, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return Unreachable, fmt.Errorf("it is connected but does not answer: %w", err)
	}
	p.pending = nil
	var answer *spdkrpc.Error
	switch {
	case err == nil:
		return Runtime, nil
	case errors.As(err, &answer) && answer.Code == jsonrpc.CodeWrongState:
		return Startup, nil
	case errors.As(err, &answer) && answer.Code != 0:
		return Runtime, nil // it answers; perhaps its list of allowed methods (-R) lacks this one
	}
	return Unreachable, err
}

func (p *probe) close() {
	if p.socket != nil {
		_ = p.socket.Close() // nothing more can be done about a UNIX socket that does not close
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
