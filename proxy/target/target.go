package target

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Config describes how to reach a target. Socket is required. In all other fields, the zero value
// selects a default.
type Config struct {
	Socket      string // path of the UNIX socket
	Connections int    // connections for calls, in addition to that for probes; 0 selects 4
	MaxInFlight int    // maximum number of running calls on all connections; 0 selects 1024
	// UserInFlight is how many running calls a user may have, unless UsersInFlight contains a
	// different number for that user. A user's calls never outnumber the free slots. 0 selects 256.
	UserInFlight  int
	UsersInFlight map[string]int
	// PeerUIDs lists the users who may listen at the socket, besides root and this process's own
	// user.
	PeerUIDs []uint32
	// HasMemory reports whether a user may have another long response. If it is nil, every user
	// may. The Target holds its locks while it calls HasMemory, so HasMemory must not call the
	// Target.
	HasMemory func(user string) bool
	QueueWait time.Duration // how long a call waits for a slot; 0 selects 10 s
	// LateAfter is how long a call without a response keeps its slot after the deadline; 0 selects
	// 15 min.
	LateAfter time.Duration
	// Late is called with the outcome of a call that got no response by its deadline: the late
	// response, or OutcomeUnknown if there was none. Late may be nil.
	Late func(method string, params map[string]any, err error)
	Log  *slog.Logger // nil disables logging
}

const (
	// growAt is the number of calls on the least loaded connection at which another connection is
	// opened. SPDK reads each connection once per poll.
	growAt = 16
	// These are the minimum and maximum times between attempts to connect to an unreachable target.
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// A Target is a pool of connections to one SPDK target. It is safe for concurrent use. It connects
// when it is first used, and again after its connections have closed or the socket has been
// replaced.
type Target struct {
	config    Config
	queue     *queue
	sizes     sizes
	checkPeer func(net.Conn) error
	flights   singleflight.Group
	stopped   chan struct{} // closed by Close
	// connectWait limits the time for connecting and reading the target's release.
	connectWait time.Duration

	listing     listingGate
	mu          sync.Mutex
	probe       probe
	state       State
	found       bool        // a probe has succeeded at least once
	examination Examination // the last known value, from this process or an earlier process
	conns       []*Conn
	growing     bool // another connection is being opened in the background
	closed      bool
	down        *DownError    // why the last attempt to connect failed
	until       time.Time     // no new attempt is made before this time
	backoff     time.Duration // how long to wait after the next failure
}

// New returns a Target, which does not connect until it is used.
func New(c Config) *Target {
	if c.Connections == 0 {
		c.Connections = 4
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1024
	}
	if c.UserInFlight == 0 {
		c.UserInFlight = 256
	}
	if c.QueueWait == 0 {
		c.QueueWait = 10 * time.Second
	}
	if c.LateAfter == 0 {
		c.LateAfter = 15 * time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Target{
		config: c, connectWait: 5 * time.Second, backoff: minBackoff, stopped: make(chan struct{}),
		queue:     newQueue(Limits{c.MaxInFlight, c.UserInFlight, c.UsersInFlight}),
		checkPeer: checkPeer(c.PeerUIDs),
		state:     State{Phase: Unreachable, Since: time.Now(), Err: errNotProbed},
	}
	t.queue.hasMemory = c.HasMemory
	t.queue.pace.start = func() { go t.measureRounds() }
	return t
}

// LimitUsers changes how many running calls a user may have: the user's number in byName or, if
// there is none, each.
func (t *Target) LimitUsers(each int, byName map[string]int) {
	t.queue.setLimits(Limits{PerUser: each, Of: byName})
}

// MemoryReleased grants slots to calls that were waiting for memory. It must be called when
// HasMemory may have changed from false to true for a user.
func (t *Target) MemoryReleased() { t.queue.advanceAll() }

// Connect returns an open connection for a user's next call. The error is a *DownError or ctx's
// error.
func (t *Target) Connect(ctx context.Context, who string) (*Conn, error) {
	if c := t.pick(who); c != nil {
		return c, nil
	}
	done := t.flights.DoChan("connect", func() (any, error) {
		if c := t.pick(who); c != nil {
			return c, nil
		}
		return t.add()
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Conn), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pick returns an open connection on which the user already has calls or, if there is none, the
// least loaded connection. SPDK sends the responses on a connection one after another, so a long
// response should delay only calls of the same user. If all connections are busy, pick opens
// another connection in the background.
func (t *Target) pick(who string) *Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, (*Conn).broken)
	if len(t.conns) == 0 {
		return nil
	}
	own := slices.MaxFunc(t.conns, func(a, b *Conn) int { return a.loadOf[who] - b.loadOf[who] })
	least := slices.MinFunc(t.conns, func(a, b *Conn) int { return a.load - b.load })
	if least.load >= growAt && len(t.conns) < t.config.Connections && !t.growing && time.Now().After(t.until) {
		t.growing = true
		go func() {
			_, _ = t.add()
			t.mu.Lock()
			defer t.mu.Unlock()
			t.growing = false
		}()
	}
	if own.loadOf[who] > 0 {
		return own
	}
	return least
}

// AcquireSlot waits for a slot for a user, as Call does, and returns the same errors. It is for
// work of the proxy that does not call SPDK. release returns the slot.
func (t *Target) AcquireSlot(ctx context.Context, who string) (release func(), err error) {
	slot, err := t.queue.acquire(ctx, who, new(size), t.config.QueueWait)
	if err != nil {
		return nil, err
	}
	return func() { t.queue.release(slot) }, nil
}

// Connections returns the number of open connections for calls.
func (t *Target) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, (*Conn).broken)
	return len(t.conns)
}

// add opens another connection, unless the last attempt has failed too recently.
func (t *Target) add() (*Conn, error) {
	t.mu.Lock()
	if t.down != nil && time.Now().Before(t.until) {
		defer t.mu.Unlock()
		return nil, t.down
	}
	t.mu.Unlock()

	c, err := t.dial()

	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.closed {
		err = &DownError{Socket: t.config.Socket, Err: errClosed}
		_ = c.socket.Close()
	}
	if err != nil {
		if t.down == nil { // logged only once, not for every call; Watch logs it at a higher level
			t.config.Log.Debug("no connection to the target", "socket", t.config.Socket, "error", err.Err)
		}
		t.down, t.until = err, time.Now().Add(t.backoff)
		t.backoff = min(2*t.backoff, maxBackoff)
		return nil, err
	}
	t.down, t.backoff = nil, minBackoff
	t.conns = append(t.conns, c)
	return c, nil
}

// InFlight returns the number of running calls, including those whose deadline has passed.
func (t *Target) InFlight() int { return t.queue.load().InFlight }

// Load returns the numbers of running and waiting calls.
func (t *Target) Load() Load { return t.queue.load() }

// Loads returns each user's share of Load.
func (t *Target) Loads() map[string]Load { return t.queue.loads() }

// LoadOf returns a user's share of Load, and the user's limits.
func (t *Target) LoadOf(user string) UserLoad { return t.queue.loadOf(user) }

// Close closes all connections and ends Watch. Running calls end with spdkrpc.OutcomeUnknown.
func (t *Target) Close() error {
	t.mu.Lock()
	conns, probe := t.conns, t.probe
	if !t.closed {
		close(t.stopped)
	}
	t.conns, t.closed = nil, true
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.socket.Close() // nothing can be done if closing a UNIX socket fails
	}
	probe.close()
	return nil
}
