package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A fakeBarrier is the barrier of a fake proxy, for one call.
type fakeBarrier struct {
	once            sync.Once
	arrived, opened chan struct{}
	givenUp         chan struct{}
	mu              sync.Mutex
	is              string // "open" or "given up"
	noted           func(step string)
}

func newFakeBarrier(noted func(string)) *fakeBarrier {
	return &fakeBarrier{arrived: make(chan struct{}), opened: make(chan struct{}), givenUp: make(chan struct{}), noted: noted}
}

func (g *fakeBarrier) decide(to string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.is == "" {
		g.is = to
		close(map[string]chan struct{}{"open": g.opened, "given up": g.givenUp}[to])
	}
	return g.is == to
}

var errNoBarrier = &spdkrpc.Error{Method: "spdkgate_lvol_snapshot_barrier", Kind: spdkrpc.Busy, Code: jsonrpc.CodeTooMany}

// waitAt waits at the barrier of a call, if the call has one.
func (f *freezer) waitAt(ctx context.Context, b *spdkrpc.ProxySnapshotBarrier) error {
	if b == nil {
		return nil
	}
	f.barrier.noted("frozen")
	f.barrier.once.Do(func() { close(f.barrier.arrived) })
	select {
	case <-f.barrier.opened:
		f.barrier.noted("snapshot")
		return nil
	case <-f.barrier.givenUp:
	case <-ctx.Done():
	case <-time.After(time.Duration(b.WaitMS) * time.Millisecond):
	}
	if f.barrier.decide("given up") {
		return errNoBarrier
	}
	return nil
}

func (f *freezer) passBarrier(ctx context.Context, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p spdkrpc.SpdkgateLvolSnapshotBarrierParams
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	switch p.Step {
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepAwait:
		select {
		case <-f.barrier.arrived:
		case <-f.barrier.givenUp:
			return errNoBarrier
		case <-ctx.Done():
			return ctx.Err()
		}
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepOpen:
		select {
		case <-f.barrier.arrived:
		default:
			return errNoBarrier
		}
		if !f.barrier.decide("open") {
			return errNoBarrier
		}
	default:
		f.barrier.noted("give up")
		f.barrier.decide("given up")
	}
	return json.Unmarshal([]byte("true"), result)
}

// A pair consists of two targets with volumes.
type pair struct {
	services [2]*testService
	freezers [2]*freezer
	sources  [2][]string
	mu       sync.Mutex
	noted    []string
}

func newPair(t *testing.T) *pair {
	p := &pair{}
	for i := range p.services {
		b := newTestService(t, export.TCP)
		if b.sim == nil {
			t.Skip("needs two targets")
		}
		b.Name = fmt.Sprint("target-", i)
		p.services[i], p.freezers[i] = b, behindFreezer(b)
		p.sources[i] = b.volumes(t, "pvc-1", "pvc-2")
	}
	p.again()
	return p
}

// again resets the fake proxies for the next call.
func (p *pair) again() {
	for _, f := range p.freezers {
		f.barrier = newFakeBarrier(func(step string) { p.mu.Lock(); defer p.mu.Unlock(); p.noted = append(p.noted, step) })
	}
}

func (p *pair) members() (of []Members) {
	for i, b := range p.services {
		of = append(of, Members{b.Service, p.sources[i]})
	}
	return of
}

func (p *pair) take(ctx context.Context, name string) (Group, error) {
	return TakeGroup(ctx, name, p.members(), noOthers)
}

// of returns the members of a group, grouped by target.
func (p *pair) of(g Group) (of []Members) {
	for _, b := range p.services {
		m := Members{Service: b.Service}
		for _, s := range g.Snapshots {
			if s.Target == b.Name {
				m.UUIDs = append(m.UUIDs, s.UUID)
			}
		}
		of = append(of, m)
	}
	return of
}

func (p *pair) lvols(t *testing.T) (n int) {
	for _, b := range p.services {
		n += len(b.state(t).Lvols)
	}
	return n
}

func TestGroupSnapshotSpansSeveralTargets(t *testing.T) {
	p := newPair(t)
	g, err := p.take(t.Context(), "group-1")
	require.NoError(t, err)
	assert.Equal(t, []string{"frozen", "frozen", "snapshot", "snapshot"}, p.noted, "all are frozen before the first snapshot")
	require.Len(t, g.Snapshots, 4)
	assert.True(t, g.ID.Several())
	parsed, ok := ParseGroupID(g.ID.String())
	assert.True(t, ok)
	assert.Equal(t, g.ID, parsed)
	for _, s := range g.Snapshots {
		assert.Equal(t, g.ID, s.Group)
		assert.LessOrEqual(t, len(s.Name), nameMax)
	}
	again, err := p.take(t.Context(), "group-1")
	require.NoError(t, err)
	assert.Equal(t, g, again)
	got, err := GetGroup(t.Context(), g.ID, p.of(g))
	require.NoError(t, err)
	assert.Equal(t, g, got)

	// A call with members on only some of the targets still detects members that are missing on the
	// other targets.
	_, err = GetGroup(t.Context(), g.ID, p.of(g)[:1])
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, DeleteGroup(t.Context(), g.ID, p.of(g)[:1], nil), ErrMismatch)
	others := func() ([]Members, error) { return []Members{{Service: p.services[1].Service}}, nil }
	_, err = TakeGroup(t.Context(), "group-1", p.members()[:1], others)
	require.ErrorIs(t, err, ErrIncompatible)
	unknown := errors.New("no response")
	_, err = TakeGroup(t.Context(), "group-1", p.members()[:1], func() ([]Members, error) { return nil, unknown })
	require.ErrorIs(t, err, unknown)
	assert.Equal(t, 8, p.lvols(t), "nothing was deleted")

	for range 2 {
		require.NoError(t, DeleteGroup(t.Context(), g.ID, p.of(g), nil))
	}
	assert.Equal(t, 4, p.lvols(t))
	for _, b := range p.services {
		cleanUp(t, b, "")
	}
}

// The leftovers of an interrupted attempt are deleted on every target.
func TestIncompleteGroupOnSeveralTargetsIsNotCompleted(t *testing.T) {
	p := newPair(t)
	half := newGroupID("group-1", time.Now(), 2, 2)
	left, err := p.services[1].rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: p.sources[1][0], SnapshotName: half.snapshotOf(p.sources[1][0])})
	require.NoError(t, err)
	g, err := p.take(t.Context(), "group-1")
	require.NoError(t, err)
	assert.NotContains(t, uuidsOf(g), left)
	assert.Equal(t, 8, p.lvols(t))
	require.NoError(t, DeleteGroup(t.Context(), g.ID, p.of(g), nil))
	for _, b := range p.services {
		cleanUp(t, b, "")
	}
}

// If one target cannot take its snapshots, the other targets unfreeze their volumes immediately and
// keep no snapshots.
func TestGroupSnapshotFailsIfOneTargetFails(t *testing.T) {
	inUse := &spdkrpc.Error{Method: "spdkgate_lvol_snapshot", Kind: spdkrpc.InUse, Code: jsonrpc.CodeInUse}
	for name, c := range map[string]struct {
		disturb func(p *pair)
		want    error
	}{
		"it cannot freeze":         {func(p *pair) { p.freezers[1].fails = inUse }, spdkrpc.InUse},
		"its barrier was given up": {func(p *pair) { p.freezers[1].barrier.decide("given up") }, spdkrpc.Busy},
		"its snapshot fails": {func(p *pair) {
			p.services[1].sim.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Do: spdktest.Fail})
		}, nil},
		"its proxy knows no barriers": {func(p *pair) { p.services[1].Service = p.services[1].Target.Service(p.services[1].rpc) }, ErrNotTogether},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			c.disturb(p)
			_, err := p.take(t.Context(), "group-1")
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			assert.Equal(t, 4, p.lvols(t), "%v", err)
			if name == "it cannot freeze" {
				assert.Contains(t, p.noted, "give up", "the other target's hosts wait for nothing")
			}
		})
	}
}

// Whichever RPC fails on one of the targets, and however it fails, a retry takes one complete group
// and leaves nothing else behind.
func TestGroupOperationsOnSeveralTargetsSurviveCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	if realtarget.Given() {
		t.Skip("needs two targets")
	}
	try := func(t *testing.T, target, at int, f failure) (calls int) {
		p := newPair(t)
		b := p.services[target]
		b.seen.swept.Store(true)
		if f.refused {
			b.fault.RefuseCall(at)
		} else {
			b.fault.FailCall(at, f.executed, f.deadly)
		}
		first, err := p.take(t.Context(), "group-1")
		calls = b.fault.Calls()
		b.fault.Reset()
		p.again()
		again, repeated := p.take(t.Context(), "group-1")
		require.NoError(t, repeated, "after %v", err)
		if err == nil {
			assert.Equal(t, first, again)
		}
		assert.Equal(t, 8, p.lvols(t), "%v", err)
		require.NoError(t, DeleteGroup(t.Context(), again.ID, p.of(again), nil))
		for _, b := range p.services {
			cleanUp(t, b, "take")
		}
		return calls
	}
	for target := range 2 {
		calls := 0
		require.True(t, t.Run("undisturbed", func(t *testing.T) { calls = try(t, target, 0, failure{}) }))
		require.Greater(t, calls, 8)
		for at := 1; at <= calls; at++ {
			for how, f := range map[string]failure{"not executed": {}, "reply lost": {executed: true}, "reply lost, caller dies": {executed: true, deadly: true}, "refused": {refused: true}} {
				t.Run(fmt.Sprintf("target %d call %d %s", target, at, how), func(t *testing.T) { try(t, target, at, f) })
			}
		}
	}
}
