package target

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestProbeDeterminesTheState(t *testing.T) {
	log := new(logtest.Log)
	f := newFake(t, "v24.01", echo)
	target := newTarget(t, Config{Socket: f.path, Log: slog.New(slog.NewTextHandler(log, nil))})
	state := target.State()
	assert.Equal(t, Unreachable, state.Phase)
	assert.ErrorIs(t, state.Err, errNotProbed)
	assert.False(t, state.Since.IsZero())

	f.phase.Store(new(`"error":{"code":-1,"message":"Method may only be called after framework is initialized"}`))
	state = look(t, target)
	assert.Equal(t, Startup, state.Phase)
	assert.Equal(t, "v24.01", state.Release.String())
	require.NoError(t, state.Err)
	began := state.Since
	assert.Equal(t, began, look(t, target).Since, "the time when the phase began, not the time of the probe")

	f.phase.Store(nil)
	state = look(t, target)
	assert.Equal(t, Runtime, state.Phase)
	assert.True(t, state.Since.After(began))
	f.phase.Store(new(`"error":{"code":-32601,"message":"Method not found"}`))
	assert.Equal(t, Runtime, look(t, target).Phase, "the target may allow only a few methods")
	assert.EqualValues(t, 1, f.accepted.Load(), "all probes use one connection")
	assert.Zero(t, state.Reconnects)

	f.stop()
	require.Eventually(t, func() bool { return look(t, target).Phase == Unreachable }, long, time.Millisecond)
	state = look(t, target)
	require.Error(t, state.Err)
	assert.Equal(t, "v24.01", state.Release.String(), "it was that")

	f.setRelease("v26.05")
	f.phase.Store(nil)
	f.start()
	state = look(t, target)
	assert.Equal(t, Runtime, state.Phase)
	assert.Equal(t, "v26.05", state.Release.String())
	assert.Equal(t, 1, state.Reconnects)
	assert.Equal(t, state, target.State())
	for line, times := range map[string]int{"waits for framework_start_init": 1, `"target serves"`: 2} {
		assert.Equal(t, times, log.Count(line), line)
	}
	assert.Positive(t, log.Count("target unreachable"))
}

// While the target does not respond, the proxy sends no further probe.
func TestOnlyOneProbeRunsAtATime(t *testing.T) {
	f := newFake(t, "v26.05", echo)
	f.phase.Store(new(""))
	target := newTarget(t, Config{Socket: f.path})
	target.connectWait = 20 * time.Millisecond
	for range 3 {
		state := look(t, target)
		assert.Equal(t, Unreachable, state.Phase)
		assert.ErrorContains(t, state.Err, "does not respond")
	}
	assert.EqualValues(t, 1, f.probeResult.Load())
	assert.EqualValues(t, 1, f.accepted.Load())
}

// Watch detects a restart of the target even without calls.
func TestWatchDetectsRestarts(t *testing.T) {
	f := newFake(t, "v26.01", echo)
	target := newTarget(t, Config{Socket: f.path})
	ended := make(chan struct{})
	go func() { target.Watch(); close(ended) }()
	seen := func(phase Phase, release string) func() bool {
		return func() bool {
			s := target.State()
			return s.Phase == phase && s.Release.String() == release
		}
	}
	require.Eventually(t, seen(Runtime, "v26.01"), long, time.Millisecond)
	f.stop()
	require.Eventually(t, seen(Unreachable, "v26.01"), long, time.Millisecond)
	f.setRelease("v26.05")
	f.start()
	require.Eventually(t, seen(Runtime, "v26.05"), long, time.Millisecond)
	require.NoError(t, target.Close())
	require.NoError(t, target.Close())
	<-ended
	assert.Equal(t, Runtime, look(t, target).Phase, "the state of the last probe; there are no further probes")
}

// The reason why a target is unreachable is logged only when it changes.
func TestChangedReasonIsLogged(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "spdk.sock")
	var log bytes.Buffer
	target := newTarget(t, Config{Socket: socket, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		look(t, target)
	}
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	for range 3 {
		look(t, target)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "no such file"), log.String())
	assert.Equal(t, 1, strings.Count(log.String(), "connection refused"), log.String())
}

// If a probe's request cannot be sent, the probe reports the reason.
func TestUnsentProbeReportsTheReason(t *testing.T) {
	socket := spdkrpc.NewSocket(filepath.Join(t.TempDir(), "missing.sock"))
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	p := probe{socket: socket}
	phase, err := p.phase(t.Context())
	assert.Equal(t, Unreachable, phase)
	require.ErrorIs(t, err, spdkrpc.Unreachable)
	assert.Nil(t, p.pending)
}
