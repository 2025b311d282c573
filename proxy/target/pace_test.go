package target

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// burst takes slots until the user has to wait for a round.
func burst(t *testing.T, q *queue, who string) (slots []slot) {
	for {
		u, err := q.acquire(t.Context(), who, new(size), 0)
		if err != nil {
			return slots
		}
		slots = append(slots, u)
	}
}

func TestBurstsAreMeasuredByProbes(t *testing.T) {
	started := 0
	q := newQueue(Limits{Total: 1024, PerUser: 256})
	q.pace.start = func() { started++ }
	for range firstBurst - 1 {
		mustTake(t, q, "a")
	}
	assert.Zero(t, started, "a few calls cause no measurement")
	assert.Len(t, burst(t, q, "a"), 1)
	assert.Equal(t, 1, started)
	assert.Len(t, burst(t, q, "b"), firstBurst, "each user may send a burst")

	require.True(t, q.nextRound(quickRound/2))
	assert.Len(t, burst(t, q, "a"), 2*firstBurst, "after a quick round, the burst is larger, and calls sent earlier do not count")
	require.True(t, q.nextRound((quickRound+slowRound)/2))
	assert.Len(t, burst(t, q, "a"), 2*firstBurst)
	require.True(t, q.nextRound(2*slowRound))
	assert.Len(t, burst(t, q, "a"), firstBurst, "after a slow round, the burst is smaller")
	for range 10 {
		require.True(t, q.nextRound(2*slowRound))
		burst(t, q, "a")
	}
	slots := burst(t, q, "b")
	assert.Len(t, slots, minBurst, "the burst is never smaller than the minimum")
	for range 3 * minBurst {
		q.release(slots[0])
		slots = burst(t, q, "b")
		assert.Len(t, slots, 1, "a call that ends within its round does not count")
	}
	q.sound(t)
	assert.Equal(t, 1, started)

	require.True(t, q.nextRound(time.Second), "a user reached the limit in this round")
	require.False(t, q.nextRound(time.Second), "nobody did")
	assert.Len(t, burst(t, q, "c"), firstBurst)
	assert.Equal(t, 2, started)
}

func TestWaitingCallsAreSentInTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 1024, PerUser: 256})
		burst(t, q, "a")
		got := make(chan slot, 100)
		for range 3 * firstBurst {
			awaitTurn(t, q, "a", got)
		}
		require.True(t, q.nextRound(quickRound))
		synctest.Wait()
		assert.Len(t, got, firstBurst)
		q.sound(t)
		q.stopPacing()
		synctest.Wait()
		assert.Len(t, got, 3*firstBurst)
	})
}

// Long responses reduce the number of calls that may be in flight, but not to zero.
func TestLongResponsesAreLimited(t *testing.T) {
	q := newQueue(Limits{Total: 1024, PerUser: 256})
	long := new(size)
	long.note(bytesPerUser / 4)
	for range 4 {
		_, err := q.acquire(t.Context(), "a", long, 0)
		require.NoError(t, err)
	}
	_, err := q.acquire(t.Context(), "a", long, 0)
	require.ErrorAs(t, err, new(*BusyError))
	mustTake(t, q, "a")
	long.note(10 * bytesPerUser)
	u, err := q.acquire(t.Context(), "b", long, 0)
	require.NoError(t, err, "one is")
	_, err = q.acquire(t.Context(), "b", long, 0)
	require.ErrorAs(t, err, new(*BusyError))
	q.release(u)
	_, err = q.acquire(t.Context(), "b", long, 0)
	require.NoError(t, err)
	q.sound(t)

	s := new(size)
	s.note(longReply - 1)
	assert.Zero(t, s.expected(), "short responses do not count")
	s.note(longReply)
	assert.Equal(t, longReply, s.expected())
	s.note(0)
	assert.Less(t, s.expected(), longReply)
	assert.Positive(t, s.expected())
}

// A poller executes calls as SPDK does: a single thread executes everything that has arrived before
// it polls again. It responds to a probe after all calls that were sent before the probe.
type poller struct {
	path    string
	arrived chan arrival
	// granted returns how many expensive calls the scheduler has sent so far.
	granted func() int

	executed atomic.Int32 // expensive calls executed so far
}

type arrival struct {
	call
	conn net.Conn
}

func newPoller(t *testing.T) *poller {
	p := &poller{path: filepath.Join(t.TempDir(), "spdk.sock"), arrived: make(chan arrival, 1024)}
	l, err := net.Listen("unix", p.path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				dec := json.NewDecoder(c)
				for a := (call{}); dec.Decode(&a) == nil; a = (call{}) {
					p.arrived <- arrival{a, c}
				}
			}()
		}
	}()
	return p
}

// run executes calls until the context ends.
func (p *poller) run(ctx context.Context) {
	var probe *arrival
	before := 0 // expensive calls sent before this call
	for {
		if probe != nil && int(p.executed.Load()) >= before {
			p.execute(*probe)
			probe = nil
		}
		select {
		case a := <-p.arrived:
			if a.Method == phaseMethod { // probes, one at a time
				probe, before = &a, p.granted()
			} else {
				p.execute(a)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *poller) execute(a arrival) {
	result := "[]"
	switch a.Method {
	case "expensive":
		time.Sleep(20 * time.Millisecond) // the minimum cost of a call, even on a busy machine
		p.executed.Add(1)
	case versionMethod:
		result = `{"version":"SPDK v26.05"}`
	}
	_, _ = fmt.Fprintf(a.conn, `{"id":%s,"result":%s}`, a.ID, result)
}

// If the scheduler sent all of one user's expensive calls together, another user would have to wait
// for all of them. The scheduler must send only a small burst and, once it has measured the first
// burst, a smaller one. The test counts the calls that are sent.
func TestExpensiveCallsDoNotDelayOtherUsers(t *testing.T) {
	p := newPoller(t)
	target := newTarget(t, Config{Socket: p.path})
	q := target.queue
	underWay := func() int { return target.Loads()["u"].InFlight }
	answered := func() int { return int(p.executed.Load()) }
	p.granted = func() int { return answered() + underWay() }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go p.run(ctx)

	var flood sync.WaitGroup
	c := connect(t, target)
	for range 256 {
		flood.Go(func() {
			for err := error(nil); err == nil; { // until the target is closed
				_, err = c.Call(t.Context(), "u", "expensive", nil, long)
			}
		})
	}
	for range 5 {
		c, err := target.Connect(t.Context(), "other")
		require.NoError(t, err)
		assert.LessOrEqual(t, underWay(), 2*firstBurst, "number of calls for which the other user may have to wait")
		_, err = c.Call(t.Context(), "other", "cheap", nil, long)
		require.NoError(t, err)
	}
	small := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.pace.burst < firstBurst/2
	}
	require.Eventually(t, small, long, time.Millisecond, "bursts become smaller, because each round was slow")
	require.NoError(t, target.Close())
	flood.Wait()
}

// A probe that began before a burst was sent does not measure the burst.
func TestEarlierProbesDoNotMeasureBursts(t *testing.T) {
	f := newFake(t, "v26.05", echo)
	target := newTarget(t, Config{Socket: f.path})
	end, began := make(chan struct{}), time.Now()
	target.flights.DoChan("probe", func() (any, error) {
		<-end
		return probeResult{began: began}, nil
	})
	measured := make(chan struct{})
	go func() { target.timedProbe(); close(measured) }()
	select {
	case <-measured:
		t.Fatal("the measurement waits for the running probe")
	case <-time.After(20 * time.Millisecond): // by now, it has probably joined that probe
	}
	close(end)
	<-measured
	assert.EqualValues(t, 1, f.probeResult.Load(), "the measurement then sends its own probe")
}
