package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A fate is an event that happens at one RPC of a CSI call.
type fate string

const (
	killedBefore  fate = "killed before"  // the controller dies; the target does not get the RPC
	killedAfter   fate = "killed after"   // the controller dies; the target has executed the RPC
	replyLost     fate = "reply lost"     // the RPC is executed; the controller learns that its outcome is unknown
	replyLate     fate = "reply late"     // the RPC is executed; the CSI call's deadline passes before the reply
	targetRestart fate = "target restart" // the target restarts before it gets the RPC, without its exports
	overtaken     fate = "overtaken"      // another controller makes the same CSI call before the target sees the RPC
)

var fates = []fate{killedBefore, killedAfter, replyLost, replyLate, targetRestart, overtaken}

// A crashTarget is a target that applies a fate to one of its calls. The target is simulated, or
// real if SPDK_SOCK is set.
type crashTarget struct {
	*simTarget
	t    *testing.T
	disk string

	mu    sync.Mutex
	count int
	at    int // number of the call that the fate applies to; 0 for none
	fate  fate
	dead  bool          // the controller has died
	ended chan struct{} // closed when the CSI call whose RPC receives a late reply has ended

	overtake func() // makes the same CSI call through another controller
}

const crashStore = "lvs0"

func newCrashTarget(t *testing.T) *crashTarget {
	t.Helper()
	c := &crashTarget{t: t, disk: filepath.Join(t.TempDir(), "disk"), simTarget: &simTarget{name: "t0", freezes: true, keys: t.TempDir(), info: &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)}}}
	socketPath := ""
	if realtarget.Given() {
		socketPath = realtarget.Socket(t)
	} else {
		target, err := spdktest.Start(spdktest.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, target.Close()) })
		c.Target, socketPath = target, target.Socket()
	}
	socket := spdkrpc.NewSocket(socketPath)
	c.rpc = spdkrpc.NewClient(&drivertest.KeyPlacer{Caller: socket, Dir: c.keys, Info: func() *spdkrpc.ProxyTargetInfo { return c.info }})
	c.gateway = httptest.NewServer(c.meetFate(c.forward(socket)))
	t.Cleanup(func() {
		c.gateway.Close()
		assert.NoError(t, socket.Close())
	})
	require.NoError(t, os.WriteFile(c.disk, nil, 0o600))
	require.NoError(t, os.Truncate(c.disk, storeMiB*mib))
	c.attachDisk()
	_, err := c.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: crashStore})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, c.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new(crashStore)}))
		assert.NoError(t, c.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: "disk"}))
	})
	return c
}

// attachDisk attaches the disk to a target that has just started, as a proxy would.
func (c *crashTarget) attachDisk() {
	ctx := context.WithoutCancel(c.t.Context())
	_, err := drivertest.Retry(driver.Code, func() (any, error) { // the first call may still use the previous connection
		return nil, c.rpc.BdevWaitForExamine(ctx)
	})
	assert.NoError(c.t, err)
	_, err = c.rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: c.disk, BlockSize: new(uint32(4096))})
	assert.NoError(c.t, err)
	assert.NoError(c.t, c.rpc.BdevWaitForExamine(ctx))
}

// strike applies a fate to the at-th call, counted from now on.
func (c *crashTarget) strike(at int, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count, c.at, c.fate, c.ended = 0, at, f, make(chan struct{})
}

// next returns the next call's fate, whether the controller is dead, and a channel that is closed
// when the CSI call has ended.
func (c *crashTarget) next() (f fate, dead bool, ended <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	if c.count == c.at && !c.dead {
		c.dead = c.fate == killedBefore || c.fate == killedAfter
		return c.fate, false, c.ended
	}
	return "", c.dead, nil
}

func (c *crashTarget) meetFate(target http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, dead, ended := c.next()
		switch {
		case dead, f == killedBefore:
			panic(http.ErrAbortHandler)
		case f == killedAfter, f == replyLost:
			target.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case f == replyLate:
			target.ServeHTTP(httptest.NewRecorder(), r)
			<-ended
			panic(http.ErrAbortHandler)
		case f == targetRestart:
			c.Crash()
			assert.NoError(c.t, c.Restart())
			c.attachDisk()
			panic(http.ErrAbortHandler)
		case f == overtaken:
			c.overtake()
		}
		target.ServeHTTP(w, r)
	})
}

// A crashBench is a crashTarget with a controller that the test can replace.
type crashBench struct {
	*testController
	target    *crashTarget
	transport string
	patience  time.Duration // how long to wait for the locks of controllers that may have died
}

func newCrashBench(t *testing.T, transport string) *crashBench {
	t.Helper()
	b := &crashBench{target: newCrashTarget(t), transport: transport, patience: time.Millisecond, testController: &testController{secrets: secretsFor("t0")}}
	b.startController(t)
	return b
}

// startController replaces the controller with a new one, which has no cached state.
func (b *crashBench) startController(t *testing.T) {
	t.Helper()
	c, err := New(&config.Config{Nodes: []config.Target{{
		Name: "t0", RPCURL: b.target.gateway.URL, TargetType: b.transport, TargetAddr: "127.0.0.1", ListenAddr: "127.0.0.1",
		TargetPort: port(b.transport), ListenPort: port(b.transport), Lvstores: []string{crashStore},
	}}}, "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	cfg := c.targets.byName["t0"].Config
	cfg.ClaimPatience = b.patience
	c.targets.byName["t0"] = volume.NewTarget(cfg)
	b.Controller = c
	b.withCredentials(t)
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	b.target.dead = false
}

func port(transport string) string {
	if transport == config.TargetISCSI {
		return "3260"
	}
	return "4420"
}

// until retries a call as a sidecar does, until it succeeds or fails with a final code.
func (b *crashBench) until(t *testing.T, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last error
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		require.Contains(t, notFinal, driver.Code(err), "%s: %v", what, err)
		require.NoError(t, ctx.Err(), "%s: %v, before %v", what, err, last)
		last = err
	}
}

// notFinal lists the codes after which a sidecar retries a call.
var notFinal = []codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}

// A targetState contains all objects that a controller may leave behind on a target.
type targetState struct {
	free                     uint64
	lvols, subsystems, nodes []string
	initiatorGroups          int
	keys                     []string
	authGroups               int
}

func (b *crashBench) state(t *testing.T) (s targetState) {
	t.Helper()
	rpc := b.target.rpc
	s.free, s.lvols = b.target.free(t), b.target.lvols(t)
	subsystems, err := rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for _, sub := range subsystems {
		if sub.Subtype == "NVMe" {
			s.subsystems = append(s.subsystems, sub.NQN)
		}
	}
	nodes, err := rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	for _, n := range nodes {
		s.nodes = append(s.nodes, n.Name)
	}
	groups, err := rpc.ISCSIGetInitiatorGroups(t.Context())
	require.NoError(t, err)
	s.initiatorGroups = len(groups)
	keys, err := rpc.KeyringGetKeys(t.Context())
	if !errors.Is(err, spdkrpc.MethodNotFound) { // v24.01
		require.NoError(t, err)
	}
	for _, k := range keys {
		s.keys = append(s.keys, k.Name)
	}
	auth, err := rpc.ISCSIGetAuthGroups(t.Context())
	require.NoError(t, err)
	s.authGroups = len(auth)
	return s
}

// deleteAll deletes everything that the controller lists, volumes first.
func (b *crashBench) deleteAll(t *testing.T) {
	t.Helper()
	volumes, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	for _, e := range volumes.GetEntries() {
		id := e.GetVolume().GetVolumeId()
		for _, node := range []string{nodeA, nodeB} {
			b.until(t, "unpublish", func(ctx context.Context) error { return b.unpublish(ctx, id, node) })
		}
		b.until(t, "delete", func(ctx context.Context) error { return b.delete(ctx, id) })
	}
	snapshots, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
	require.NoError(t, err)
	members := map[string][]string{}
	for _, e := range snapshots.GetEntries() {
		if group := e.GetSnapshot().GetGroupSnapshotId(); group != "" {
			members[group] = append(members[group], e.GetSnapshot().GetSnapshotId())
			continue
		}
		b.until(t, "delete snapshot", func(ctx context.Context) error {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: e.GetSnapshot().GetSnapshotId(), Secrets: b.secrets})
			return err
		})
	}
	for group, ids := range members {
		b.until(t, "delete group snapshot", func(ctx context.Context) error { return b.deleteGroup(ctx, group, ids) })
	}
}

// TestCSICallsSurviveCrashes kills the controller before and after every RPC of every CSI call. In
// further runs, the reply is lost, the deadline passes, the target restarts, or another controller
// makes the same call. The test then retries the call as a sidecar would, through another
// controller if the first one was killed, and the call must succeed. Finally the test deletes all
// objects, and the target's state must be the same as before the call.
func TestCSICallsSurviveCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	points := 0
	for _, transport := range []string{config.TargetNVMeTCP, config.TargetISCSI} {
		for _, call := range slices.Concat(csiCalls, authenticatedCalls(t, transport)) {
			if transport == config.TargetISCSI && !call.attached {
				continue
			}
			t.Run(transport+"/"+call.name, func(t *testing.T) {
				calls := 0
				t.Run("undisturbed", func(t *testing.T) { calls = call.tryAt(t, transport, 0, "") })
				require.Positive(t, calls)
				for _, f := range fates {
					if f == targetRestart && realtarget.Given() {
						continue // this test must not restart a real target
					}
					for at := 1; at <= calls; at++ {
						points++
						t.Run(fmt.Sprintf("%s, call %d", f, at), func(t *testing.T) { call.tryAt(t, transport, at, f) })
					}
				}
			})
		}
	}
	t.Logf("%d crash points, nothing left behind", points)
}

// tryAt applies a fate to the at-th RPC of the call. If at is 0, it applies no fate. It returns the
// number of RPCs in the first attempt.
func (call csiCall) tryAt(t *testing.T, transport string, at int, f fate) (calls int) {
	b := newCrashBench(t, transport)
	start := b.state(t)
	do := call.prepare(t, b)
	var others *string // the other controller's response
	b.target.overtake = func() {
		mine := b.Controller
		defer func() { b.Controller, b.patience = mine, time.Millisecond }()
		b.patience = export.DefaultClaimPatience
		b.startController(t)
		for range 10 { // the other controller may have to wait for this call
			answer, err := do(t.Context())
			if err == nil {
				others = &answer
				return
			}
			assert.Contains(t, notFinal, driver.Code(err), err)
		}
	}
	b.target.strike(at, f)
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if f == replyLate {
		const deadline = 300 * time.Millisecond
		ctx, cancel = context.WithTimeout(ctx, deadline)
	}
	first, err := do(ctx)
	cancel()
	close(b.target.ended)
	b.target.mu.Lock()
	calls = b.target.count
	b.target.mu.Unlock()
	b.target.strike(0, "")
	if f == "" {
		require.NoError(t, err)
	}
	if f == killedBefore || f == killedAfter {
		b.startController(t)
		err = context.Canceled // the sidecar did not get a response
	}
	var again string
	b.until(t, "again", func(ctx context.Context) (err error) { again, err = do(ctx); return err })
	if err == nil {
		assert.Equal(t, first, again, "the same response")
	} else if f == overtaken {
		assert.Contains(t, notFinal, driver.Code(err), err)
	}
	if others != nil {
		assert.Equal(t, *others, again, "the other controller's response remains valid")
	}
	b.deleteAll(t)
	assert.Equal(t, start, b.state(t), "nothing is left")
	return calls
}
