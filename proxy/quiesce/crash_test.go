package quiesce

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// settled waits until the watchdog has thawed all volumes.
func (b *bench) settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.q.Recover(context.Background()) == 0 && len(b.entries()) == 0 }, time.Minute, 5*time.Millisecond, b.log.String())
}

// Whichever call of an operation fails, and however it fails, the states of the paths are restored,
// and the reported outcome of the snapshot is correct.
func TestFailedCallLeavesNothingFrozen(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.q.grace = shortGrace
	b.target.ForgetCalls()
	_, err := b.take(want("v0", "first"))
	require.NoError(t, err)
	// Omit calls of methods that the target lacks, because faults do not count them.
	calls := slices.DeleteFunc(b.target.Calls(), func(c spdktest.Call) bool { return c.Err != nil && c.Err.Code == jsonrpc.CodeMethodNotFound })
	require.Greater(t, len(calls), 12)
	for i := range calls {
		for name, fault := range map[string]spdktest.Fault{
			"fails":                              {Do: spdktest.Fail},
			"fails after execution":              {Do: spdktest.Fail, Executed: true},
			"ends the connection":                {Do: spdktest.Close},
			"ends the connection after the call": {Do: spdktest.Close, Executed: true},
			"crashes the target before the call": {Do: spdktest.Crash},
			"crashes the target after the call":  {Do: spdktest.Crash, Executed: true},
		} {
			t.Run(fmt.Sprint(i, " ", calls[i].Method, " ", name), func(t *testing.T) {
				if fault.Do == spdktest.Crash {
					b := newBench(t, "v26.05")
					b.volume("v0")
					b.export("v0", true)
					fault.Skip = i
					b.target.Inject(fault)
					_, err := b.take(want("v0", "s"))
					if calls[i].Method == "bdev_lvol_snapshot" {
						require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
					}
					require.NoError(t, b.target.Restart())
					b.settled(t)
					return
				}
				snapshot := fmt.Sprint("s", i, len(name))
				fault.Skip = i
				b.target.Inject(fault)
				_, err := b.take(want("v0", snapshot))
				b.target.ClearFaults()
				b.settled(t)
				assert.Equal(t, asExported, b.states("v0"))
				var inUse *InUseError
				var busy *BusyError
				switch there := b.exists(snapshot); {
				case err == nil:
					assert.True(t, there)
				case errors.As(err, &inUse), errors.As(err, &busy), errors.Is(err, spdkrpc.Unreachable):
					assert.False(t, there, "%v", err)
				case fault.Executed && calls[i].Method == "bdev_lvol_snapshot":
				default:
					assert.False(t, there, "%v", err)
				}
			})
		}
	}
}

// A relay forwards calls between a proxy and its target, and runs a function before or after one of
// them.
type relay struct {
	socket string
	count  atomic.Int32

	mu      sync.Mutex
	at      int32
	after   bool
	do      func()
	methods []string // methods called since the last strike
}

// strike sets the function that the relay runs, and the call at which it runs the function.
func (r *relay) strike(at int32, after bool, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count.Store(0)
	r.at, r.after, r.do, r.methods = at, after, do, nil
}

func newRelay(t *testing.T, target string) *relay {
	r := &relay{socket: filepath.Join(t.TempDir(), "relay.sock"), at: -1}
	l, err := net.Listen("unix", r.socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(conn, target)
		}
	}()
	return r
}

func (r *relay) serve(conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	there, err := net.Dial("unix", target)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }()
	struck := map[string]bool{} // ids of calls after which to run the function
	go func() {
		in := json.NewDecoder(bufio.NewReader(there))
		for {
			var answer json.RawMessage
			if in.Decode(&answer) != nil {
				_ = conn.Close()
				return
			}
			var id struct{ ID json.RawMessage }
			_ = json.Unmarshal(answer, &id)
			r.mu.Lock()
			if struck[string(id.ID)] {
				r.do()
			}
			r.mu.Unlock()
			_, _ = conn.Write(answer)
		}
	}()
	in := json.NewDecoder(conn)
	for {
		var call json.RawMessage
		if err := in.Decode(&call); err != nil {
			if errors.Is(err, io.EOF) {
				return // the target still executes calls that were already sent
			}
			return
		}
		var id struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(call, &id)
		r.mu.Lock()
		r.methods = append(r.methods, id.Method)
		if n := r.count.Add(1) - 1; n == r.at {
			if r.after {
				struck[string(id.ID)] = true
			} else {
				r.do()
			}
		}
		r.mu.Unlock()
		if _, err := there.Write(call); err != nil {
			return
		}
	}
}

const childEnv = "SPDKGATE_QUIESCE_CHILD"

// TestProxyChildProcess is the proxy process that TestKilledSnapshotLeavesNothingFrozen starts and
// kills.
func TestProxyChildProcess(t *testing.T) {
	folder, socket, snapshot := os.Getenv(childEnv), os.Getenv(childEnv+"_SOCKET"), os.Getenv(childEnv+"_SNAPSHOT")
	if folder == "" {
		t.Skip("it is started by TestKilledSnapshotLeavesNothingFrozen")
	}
	f, err := OpenFolder(folder)
	require.NoError(t, err)
	q := New(Options{Folder: f, At: Place{Socket: socket}, Connect: connect, Process: process})
	q.lockTimeout, q.freezeTimeout = time.Minute, time.Minute // so that the kill comes first
	_, err = q.Take(context.Background(), wantAll(strings.Fields(os.Getenv(childEnv+"_VOLUMES")), snapshot), Mode{Freeze: true})
	require.NoError(t, err)
}

// If a proxy is killed before or after any of its calls, no volume stays frozen for long:
// `spdk-proxy thaw` or a new proxy process, whichever runs first, immediately thaws the volumes.
func TestKilledSnapshotLeavesNothingFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	killAtEveryCall(t, "v0")
}

// If a proxy is killed at any call of a group snapshot, beginning with the first call that makes a
// change, no volume stays frozen for long.
func TestKilledGroupSnapshotLeavesNothingFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	killAtEveryCall(t, "v0", "v1")
}

func killAtEveryCall(t *testing.T, volumes ...string) {
	b := newBench(t, "v26.05")
	for _, v := range volumes {
		b.volume(v)
		b.export(v, true)
	}
	b.q.grace = shortGrace
	r := newRelay(t, b.target.Socket())
	run := func(snapshot string, at int32, after bool) (killed bool) {
		child := exec.Command(os.Args[0], "-test.run=^TestProxyChildProcess$")
		child.Env = append(os.Environ(), childEnv+"="+b.folder.path, childEnv+"_SOCKET="+r.socket, childEnv+"_SNAPSHOT="+snapshot, childEnv+"_VOLUMES="+strings.Join(volumes, " "))
		var once sync.Once
		started := make(chan struct{})
		r.strike(at, after, func() {
			once.Do(func() { <-started; _ = child.Process.Kill() })
		})
		require.NoError(t, child.Start())
		close(started)
		_ = child.Wait()
		return !child.ProcessState.Success()
	}
	require.False(t, run("whole", -1, false))
	calls := r.count.Load()
	require.Greater(t, calls, int32(12*len(volumes)))
	first := int32(0)
	if len(volumes) > 1 {
		first = int32(slices.Index(r.methods, "nvmf_subsystem_listener_set_ana_state"))
		require.Positive(t, first)
	}
	left := 0
	for at := first; at < calls; at++ {
		for _, after := range []bool{false, true} {
			if first > 0 && after == (at%2 == 0) {
				continue // tests only half of the points, because each takes a long time
			}
			snapshot := fmt.Sprint("s", at, after)
			require.True(t, run(snapshot, at, after), "call %d", at)
			if len(b.entries()) > 0 {
				left++
			}
			b.settled(t)
			for _, v := range volumes {
				assert.Equal(t, asExported, b.states(v), "%s, killed at call %d, after: %t", v, at, after)
			}
		}
	}
	assert.GreaterOrEqual(t, left, 8, "the proxy was killed at least once while volumes were frozen")
	assert.Equal(t, left, b.recovered)
}

// While a process is running, neither other processes nor a second Quiescer in the same process
// recover its operations. Two operations never freeze a volume at the same time.
func TestRunningOperationsAreNotRecovered(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Delay: 300 * time.Millisecond})
	done := make(chan error)
	go func() { _, err := b.take(want("v0", "s0")); done <- err }()
	require.Eventually(t, func() bool {
		return len(b.entries()) == 1 && b.states("v0")["4420/1"] == inaccessible && b.states("v0")["4421/1"] == inaccessible
	}, time.Minute, time.Millisecond)
	other := b.quiescer(b.target.Socket())
	assert.Zero(t, other.Recover(t.Context()))
	assert.Equal(t, inaccessible, b.states("v0")["4420/1"])
	_, err := other.Take(t.Context(), want("v0", "s1"), Mode{Freeze: true})
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	give, err := b.q.Share(t.Context(), []string{nqn("v0")})
	require.NoError(t, err, "the second operation waits until the snapshot is taken")
	assert.Equal(t, asExported, b.states("v0"))
	give()
	require.NoError(t, <-done)
}

// Recovery waits for an unreachable target. On a restarted target, there is nothing to thaw.
func TestRecoveryWaitsForTheTarget(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Do: spdktest.Crash})
	_, err := b.take(want("v0", "s0"))
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	assert.Len(t, b.entries(), 1)
	assert.Zero(t, b.q.Recover(t.Context()), "there is nothing to do")
	assert.Len(t, b.entries(), 1)
	require.NoError(t, b.target.Restart())
	assert.Zero(t, b.q.Recover(t.Context()))
	assert.Empty(t, b.entries())
	assert.Zero(t, b.recovered, "nothing was still frozen")
}

// If the response to a deletion was lost, SPDK may still be executing it, so the clone must stay
// frozen.
func TestRecoveryWaitsForDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		awaitDeletions(t.Context(), nil, makingGrace)
		assert.Zero(t, time.Since(began), "nothing is being deleted")
		awaitDeletions(t.Context(), []string{"lvs0/s0"}, makingGrace)
		assert.Equal(t, makingGrace, time.Since(began))
	})
}

func TestDamagedEntryIsSetAside(t *testing.T) {
	b := newBench(t, "v26.05")
	name := time.Now().UTC().Format(nameFormat) + suffix
	require.NoError(t, os.WriteFile(b.folder.at(name), []byte(`{"made":`), 0o600))
	assert.Equal(t, 1, b.q.Recover(t.Context()))
	assert.Equal(t, []string{damagedTag + name}, b.entries())
	assert.Contains(t, b.log.String(), "nvmf_subsystem_get_listeners")
	assert.Zero(t, b.q.Recover(t.Context()))
}

// The watchdog thaws volumes that its own process failed to thaw.
func TestWatchdogThaws(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.q.Run(ctx) })
	defer running.Wait()
	defer cancel()
	// The connection is closed before the responses to the two thawing calls arrive.
	b.target.Inject(spdktest.Fault{Method: "nvmf_subsystem_listener_set_ana_state", Skip: 2, Do: spdktest.Close})
	_, err := b.take(want("v0", "s0"))
	require.NoError(t, err, "the snapshot was taken")
	assert.Equal(t, 1, b.log.Count("volumes are still frozen"))
	require.Eventually(t, func() bool { return len(b.entries()) == 0 }, time.Minute, 5*time.Millisecond)
	assert.Equal(t, asExported, b.states("v0"))
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.recovered == 1 }, time.Minute, 5*time.Millisecond)
}
