package target

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const long = time.Minute // for timeouts that must not expire

// A fake imitates an SPDK target's socket. It responds to probes, and to all other calls as
// configured.
type fake struct {
	t       *testing.T
	path    string
	release string
	// the rest of the response, such as `"result":true`; "" means that there is no response
	answer      func(call) string
	accepted    atomic.Int32
	probeResult atomic.Int32
	phase       atomic.Pointer[string] // the rest of the response to a probe; nil selects runtime

	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

type call struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

func newFake(t *testing.T, release string, answer func(call) string) *fake {
	f := &fake{t: t, path: filepath.Join(t.TempDir(), "spdk.sock"), release: release, answer: answer}
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *fake) start() {
	l, err := net.Listen("unix", f.path)
	require.NoError(f.t, err)
	f.listener = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			go f.serve(c)
		}
	}()
}

func (f *fake) setRelease(release string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release = release
}

func (f *fake) serve(c net.Conn) {
	var writing sync.Mutex
	for dec := json.NewDecoder(c); ; {
		var in call
		if dec.Decode(&in) != nil {
			_ = c.Close()
			return
		}
		go func() {
			f.mu.Lock()
			release := f.release
			f.mu.Unlock()
			out := fmt.Sprintf(`"result":{"version":"SPDK %s git sha1 0"}`, release)
			switch in.Method {
			case versionMethod:
			case phaseMethod:
				f.probeResult.Add(1)
				out = `"result":["bdev_register","bdev_unregister"]`
				if told := f.phase.Load(); told != nil {
					out = *told
				}
			default:
				out = f.answer(in)
			}
			if out != "" {
				writing.Lock()
				defer writing.Unlock()
				_, _ = fmt.Fprintf(c, "{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", in.ID, out)
			}
		}()
	}
}

func (f *fake) stop() {
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

func echo(c call) string { return `"result":` + string(c.Params) }

func newTarget(t *testing.T, c Config) *Target {
	target := New(c)
	t.Cleanup(func() { _ = target.Close() })
	return target
}

func look(t *testing.T, target *Target) State {
	state, err := target.Probe(t.Context())
	require.NoError(t, err)
	return state
}

func connect(t *testing.T, target *Target) *Conn {
	c, err := target.Connect(t.Context(), "u")
	require.NoError(t, err)
	return c
}

func TestLimitsHaveDefaults(t *testing.T) {
	for given, want := range map[[3]int][3]int{{}: {4, 1024, 256}, {1, 2, 3}: {1, 2, 3}} {
		c := New(Config{Connections: given[0], MaxInFlight: given[1], UserInFlight: given[2]}).config
		assert.Equal(t, want, [3]int{c.Connections, c.MaxInFlight, c.UserInFlight})
	}
	for given, want := range map[[2]time.Duration][2]time.Duration{{}: {10 * time.Second, 15 * time.Minute}, {1, 2}: {1, 2}} {
		c := New(Config{QueueWait: given[0], LateAfter: given[1]}).config
		assert.Equal(t, want, [2]time.Duration{c.QueueWait, c.LateAfter})
	}
}

func TestCallReturnsResultsAndErrors(t *testing.T) {
	params := make(chan string, 10)
	f := newFake(t, "v25.09", func(c call) string {
		params <- string(c.Params)
		if c.Method == "fails" {
			return `"error":{"code":-19,"message":"No such device"}`
		}
		return `"result":{"big":18446744073709551615}`
	})
	c := connect(t, newTarget(t, Config{Socket: f.path}))
	assert.Equal(t, rpcschema.MustRelease("v25.09"), c.Release())

	for _, p := range []struct {
		params map[string]any
		want   string
	}{{nil, ""}, {map[string]any{}, "{}"}, {map[string]any{"n": json.Number("18446744073709551615")}, `{"n":18446744073709551615}`}} {
		result, err := c.Call(t.Context(), "u", "m", p.params, long)
		require.NoError(t, err)
		assert.Equal(t, `{"big":18446744073709551615}`, string(result), "as SPDK wrote it")
		assert.Equal(t, p.want, <-params)
	}
	_, err := c.Call(t.Context(), "u", "fails", nil, long)
	var e *spdkrpc.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, -19, e.Code)
	assert.Equal(t, "No such device", e.Message)
}

func TestRequestSizeLimitDependsOnTheRelease(t *testing.T) {
	big := map[string]any{"a": strings.Repeat("x", 33<<10)}
	for release, fits := range map[string]bool{"v24.01": false, "v26.01": false, "v26.05": true, "v26.09-pre": true} {
		f := newFake(t, release, func(call) string { return `"result":true` })
		c := connect(t, newTarget(t, Config{Socket: f.path}))
		_, err := c.Call(t.Context(), "u", "m", big, long)
		if fits {
			require.NoError(t, err, release)
			continue
		}
		var limit *jsonrpc.LimitError
		require.ErrorAs(t, err, &limit, release)
		_, err = c.Call(t.Context(), "u", "m", nil, long)
		require.NoError(t, err, "the connection remains open")
		assert.EqualValues(t, 1, f.accepted.Load())
	}
}

func TestConnectionsGrowWithLoadUpToTheLimit(t *testing.T) {
	release := make(chan struct{})
	f := newFake(t, "v26.05", func(call) string { <-release; return `"result":true` })
	target := newTarget(t, Config{Socket: f.path, Connections: 2})
	var calls sync.WaitGroup
	start := func(n int) {
		for range n {
			c := connect(t, target)
			calls.Go(func() {
				_, err := c.Call(t.Context(), "u", "m", nil, long)
				assert.NoError(t, err)
			})
		}
	}
	inFlight := func(n int) func() bool { return func() bool { return target.InFlight() == n } }
	start(1)
	require.Eventually(t, inFlight(1), long, time.Millisecond)
	assert.EqualValues(t, 1, f.accepted.Load(), "one call uses one connection")
	start(growAt)
	require.Eventually(t, inFlight(growAt+1), long, time.Millisecond)
	connect(t, target)
	require.Eventually(t, func() bool { return target.Connections() == 2 }, long, time.Millisecond)
	start(5 * growAt)
	require.Eventually(t, inFlight(6*growAt+1), long, time.Millisecond)
	connect(t, target)
	close(release)
	calls.Wait()
	assert.EqualValues(t, 2+1, f.accepted.Load(), "there is also one for probes")
	require.Eventually(t, inFlight(0), long, time.Millisecond)
}

func TestRecreatedSocketGetsANewConnection(t *testing.T) {
	f := newFake(t, "v24.01", echo)
	target := newTarget(t, Config{Socket: f.path})
	old := connect(t, target)
	f.stop()
	require.Eventually(t, old.broken, long, time.Millisecond)

	var down *DownError
	_, err := old.Call(t.Context(), "u", "m", nil, long)
	require.ErrorAs(t, err, &down, "a connection does not turn into another one")
	_, err = target.Connect(t.Context(), "u")
	require.ErrorAs(t, err, &down)
	assert.Contains(t, err.Error(), f.path)
	assert.Equal(t, Unreachable, look(t, target).Phase)

	f.setRelease("v26.05")
	f.start()
	require.Eventually(t, func() bool { _, err := target.Connect(t.Context(), "u"); return err == nil }, long, time.Millisecond)
	assert.Equal(t, "v26.05", connect(t, target).Release().String())
	assert.Equal(t, Runtime, look(t, target).Phase)
}

func TestConnectionAttemptsAreSpacedOut(t *testing.T) {
	target := newTarget(t, Config{Socket: filepath.Join(t.TempDir(), "none")})
	_, first := target.Connect(t.Context(), "u")
	require.Error(t, first)
	target.until = time.Now().Add(long)
	for range 5 {
		_, err := target.Connect(t.Context(), "u")
		require.Same(t, first, err, "no new attempt")
	}
	for range 20 {
		target.until = time.Time{}
		_, _ = target.Connect(t.Context(), "u")
	}
	assert.Equal(t, maxBackoff, target.backoff)
}

func TestUnknownVersionCausesAnError(t *testing.T) {
	f := newFake(t, "next", nil)
	_, err := newTarget(t, Config{Socket: f.path}).Connect(t.Context(), "u")
	var down *DownError
	require.ErrorAs(t, err, &down)
	assert.ErrorContains(t, err, versionMethod)
}

func TestDeadlineLeavesTheOutcomeUnknown(t *testing.T) {
	answer := make(chan struct{})
	f := newFake(t, "v26.05", func(c call) string {
		if c.Method == "slow" {
			<-answer
		}
		return `"result":true`
	})
	target := newTarget(t, Config{Socket: f.path, MaxInFlight: 4, QueueWait: time.Millisecond})
	c := connect(t, target)
	_, err := c.Call(t.Context(), "u", "slow", nil, time.Millisecond)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	assert.Equal(t, 1, target.InFlight(), "SPDK is still executing the call")
	_, err = c.Call(t.Context(), "u", "quick", nil, long)
	require.NoError(t, err, "others go on")
	_, err = c.Call(t.Context(), "u", "slow", nil, time.Millisecond)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	_, err = c.Call(t.Context(), "u", "quick", nil, long)
	require.ErrorAs(t, err, new(*BusyError))
	assert.Equal(t, Runtime, look(t, target).Phase, "the probe needs no slot")
	close(answer)
	require.Eventually(t, func() bool { return target.InFlight() == 0 }, long, time.Millisecond)
	_, err = c.Call(t.Context(), "u", "quick", nil, long)
	require.NoError(t, err)
}

func TestUnansweredCallReleasesItsSlotEventually(t *testing.T) {
	f := newFake(t, "v26.05", func(call) string { return "" })
	target := newTarget(t, Config{Socket: f.path, LateAfter: time.Millisecond})
	_, err := connect(t, target).Call(t.Context(), "u", "m", nil, time.Millisecond)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	require.Eventually(t, func() bool { return target.InFlight() == 0 }, long, time.Millisecond)
}

func TestCanceledCallsAreNotSentAndSentCallsAreAwaited(t *testing.T) {
	sent, answer := make(chan struct{}), make(chan struct{})
	f := newFake(t, "v26.05", func(c call) string {
		close(sent)
		<-answer
		return `"result":true`
	})
	target := newTarget(t, Config{Socket: f.path, MaxInFlight: 1})
	c := connect(t, target)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Call(ctx, "u", "m", nil, long)
		done <- err
	}()
	<-sent
	leave()
	_, err := c.Call(ctx, "u", "m", nil, long)
	require.ErrorIs(t, err, ErrAbandoned)
	close(answer)
	require.NoError(t, <-done, "the outcome is known nevertheless")
}

func TestLostConnectionLeavesTheOutcomeUnknown(t *testing.T) {
	var f *fake
	f = newFake(t, "v26.05", func(call) string { f.stop(); return "" })
	_, err := connect(t, newTarget(t, Config{Socket: f.path})).Call(t.Context(), "u", "m", nil, long)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
}

func TestClosedTargetDoesNotConnectAgain(t *testing.T) {
	f := newFake(t, "v26.05", echo)
	target := New(Config{Socket: f.path})
	c := connect(t, target)
	require.NoError(t, target.Close())
	_, err := target.Connect(t.Context(), "u")
	require.Error(t, err)
	require.Eventually(t, c.broken, long, time.Millisecond)
}
