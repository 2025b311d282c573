package target

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// burst takes turns until the user has to wait for a round.
func burst(t *testing.T, q *queue, who string) (turns []turn) {
	for {
		u, err := q.take(t.Context(), who, new(size), 0)
		if err != nil {
			return turns
		}
		turns = append(turns, u)
	}
}

func TestBurstsFollowTheRounds(t *testing.T) {
	started := 0
	q := newQueue(Limits{Total: 1024, PerUser: 256})
	q.pace.start = func() { started++ }
	for range firstBurst - 1 {
		mustTake(t, q, "a")
	}
	assert.Zero(t, started, "a few calls need no pace")
	assert.Len(t, burst(t, q, "a"), 1)
	assert.Equal(t, 1, started)
	assert.Len(t, burst(t, q, "b"), firstBurst, "each user has a burst")

	require.True(t, q.nextRound(quickRound/2))
	assert.Len(t, burst(t, q, "a"), 2*firstBurst, "what was quick may be more; what was sent before does not count")
	require.True(t, q.nextRound((quickRound+slowRound)/2))
	assert.Len(t, burst(t, q, "a"), 2*firstBurst)
	require.True(t, q.nextRound(2*slowRound))
	assert.Len(t, burst(t, q, "a"), firstBurst, "what was slow, less")
	for range 10 {
		require.True(t, q.nextRound(2*slowRound))
		burst(t, q, "a")
	}
	turns := burst(t, q, "b")
	assert.Len(t, turns, leastBurst, "never nothing")
	for range 3 * leastBurst {
		q.give(turns[0])
		turns = burst(t, q, "b")
		assert.Len(t, turns, 1, "what is answered within its round makes room")
	}
	q.sound(t)
	assert.Equal(t, 1, started)

	require.True(t, q.nextRound(time.Second), "somebody needed the pace in this one")
	require.False(t, q.nextRound(time.Second), "nobody did")
	assert.Len(t, burst(t, q, "c"), firstBurst)
	assert.Equal(t, 2, started)
}

func TestWhoWaitsForARoundGoesOutWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 1024, PerUser: 256})
		burst(t, q, "a")
		got := make(chan turn, 100)
		for range 3 * firstBurst {
			awaitTurn(t, q, "a", got)
		}
		require.True(t, q.nextRound(quickRound))
		synctest.Wait()
		assert.Len(t, got, firstBurst)
		q.sound(t)
		q.unpaced()
		synctest.Wait()
		assert.Len(t, got, 3*firstBurst)
	})
}

// Long answers bound what is under way, but never to nothing.
func TestLongAnswersAreBounded(t *testing.T) {
	q := newQueue(Limits{Total: 1024, PerUser: 256})
	long := new(size)
	long.seen(bytesPerUser / 4)
	for range 4 {
		_, err := q.take(t.Context(), "a", long, 0)
		require.NoError(t, err)
	}
	_, err := q.take(t.Context(), "a", long, 0)
	require.ErrorAs(t, err, new(*BusyError))
	mustTake(t, q, "a")
	long.seen(10 * bytesPerUser)
	u, err := q.take(t.Context(), "b", long, 0)
	require.NoError(t, err, "one is")
	_, err = q.take(t.Context(), "b", long, 0)
	require.ErrorAs(t, err, new(*BusyError))
	q.give(u)
	_, err = q.take(t.Context(), "b", long, 0)
	require.NoError(t, err)
	q.sound(t)

	s := new(size)
	s.seen(longReply - 1)
	assert.Zero(t, s.expected(), "short ones do not count")
	s.seen(longReply)
	assert.Equal(t, longReply, s.expected())
	s.seen(0)
	assert.Less(t, s.expected(), longReply)
	assert.Positive(t, s.expected())
}

// A poller executes calls as SPDK does: all that it finds on a connection, before
// it looks at another one or answers.
type poller struct {
	path     string
	thread   sync.Mutex
	executed atomic.Int32
}

func newPoller(t *testing.T) *poller {
	p := &poller{path: filepath.Join(t.TempDir(), "spdk.sock")}
	l, err := net.Listen("unix", p.path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *poller) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var in []byte
	for chunk := make([]byte, 64<<10); ; {
		n, err := c.Read(chunk)
		if err != nil {
			return
		}
		in = append(in, chunk[:n]...)
		var out bytes.Buffer
		p.thread.Lock()
		dec, done := json.NewDecoder(bytes.NewReader(in)), int64(0)
		for a := (call{}); dec.Decode(&a) == nil; a = (call{}) {
			p.execute(a, &out)
			done = dec.InputOffset()
		}
		p.thread.Unlock()
		in = in[done:]
		if _, err := out.WriteTo(c); err != nil {
			return
		}
	}
}

func (p *poller) execute(a call, out io.Writer) {
	p.executed.Add(1)
	switch a.Method {
	case "expensive":
		time.Sleep(20 * time.Millisecond)
	case versionMethod:
		_, _ = fmt.Fprintf(out, `{"id":%s,"result":{"version":"SPDK v26.05"}}`, a.ID)
		return
	}
	_, _ = fmt.Fprintf(out, `{"id":%s,"result":[]}`, a.ID)
}

// One user's expensive calls, sent all at once, would have another wait for all
// of them: counted in calls that were executed meanwhile.
func TestExpensiveCallsDoNotHoldUpOthers(t *testing.T) {
	p := newPoller(t)
	target := newTarget(t, Config{Socket: p.path})
	var flood sync.WaitGroup
	c := connect(t, target)
	for range 256 {
		flood.Go(func() {
			_, _ = c.Call(t.Context(), "u", "expensive", nil, long) // until the target is closed
		})
	}
	require.Eventually(t, func() bool { return p.executed.Load() > 40 }, long, time.Millisecond)
	for range 5 {
		before := p.executed.Load()
		c, err := target.Connect(t.Context(), "other")
		require.NoError(t, err)
		_, err = c.Call(t.Context(), "other", "cheap", nil, long)
		require.NoError(t, err)
		assert.Less(t, p.executed.Load()-before, int32(2*firstBurst))
	}
	require.NoError(t, target.Close())
	flood.Wait()
}

// A look that anybody has begun before the calls went out tells nothing about them.
func TestPaceIsNotTakenFromEarlierLooks(t *testing.T) {
	f := newFake(t, "v26.05", echo)
	target := newTarget(t, Config{Socket: f.path})
	end, began := make(chan struct{}), time.Now()
	target.flights.DoChan("probe", func() (any, error) {
		<-end
		return looked{began: began}, nil
	})
	measured := make(chan struct{})
	go func() { target.lookFor(); close(measured) }()
	select {
	case <-measured:
		t.Fatal("it must wait for the look under way")
	case <-time.After(20 * time.Millisecond): // it has joined that, most probably
	}
	close(end)
	<-measured
	assert.EqualValues(t, 1, f.probed.Load(), "and then look itself")
}
