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

// Config says how to reach a target. Socket must be given; what else is zero
// takes its default.
type Config struct {
	Socket      string // path of the UNIX socket
	Connections int    // for calls, besides the one for probes; 0: 4
	MaxInFlight int    // calls under way at once, over all connections; 0: 1024
	// UserInFlight is how many of them one user may have, or another number of some
	// users. Nobody has more than are left; 0: 256.
	UserInFlight  int
	UsersInFlight map[string]int
	// PeerUIDs may listen at the socket, besides root and this process's own user.
	PeerUIDs []uint32
	// HasMemory tells whether a user may have another long answer; nil: always. It is
	// asked with locks held, and must not call the Target.
	HasMemory func(user string) bool
	QueueWait time.Duration // how long a call waits for a slot; 0: 10 s
	// LateAfter bounds how much longer than its deadline a call that SPDK does
	// not answer counts as under way; 0: 15 min.
	LateAfter time.Duration
	// Late receives the outcome of a call that SPDK had not answered by its deadline:
	// its reply, or OutcomeUnknown if none came. nil: no report.
	Late func(method string, params map[string]any, err error)
	Log  *slog.Logger // nil: none
}

const (
	// growAt calls on the least loaded connection make another worth having: SPDK reads a connection once in each poll, as much as is there.
	growAt = 16
	// Between two attempts to connect to a target that is not there.
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// A Target is a pool of connections to one SPDK target. It may be used
// concurrently. It connects when first asked to, and again when its connections
// broke or the socket was made anew.
type Target struct {
	config    Config
	queue     *queue
	sizes     sizes
	checkPeer func(net.Conn) error
	flights   singleflight.Group
	stopped   chan struct{} // closed by Close
	// connectWait bounds connecting and learning the release, each time.
	connectWait time.Duration

	listing listingGate
	mu      sync.Mutex
	probe   probe
	state   State
	found   bool // at least once
	conns   []*Conn
	growing bool
	closed  bool
	down    *DownError    // why the last attempt to connect failed
	until   time.Time     // no other attempt before
	backoff time.Duration // after the next failure
}

// New makes a Target. It does not connect yet.
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
		state:     State{Phase: Unreachable, Since: time.Now(), Err: errNotAsked},
	}
	t.queue.hasMemory = c.HasMemory
	t.queue.pace.start = func() { go t.measureRounds() }
	return t
}

// LimitUsers changes how many calls users may have under way.
func (t *Target) LimitUsers(each int, of map[string]int) {
	t.queue.setLimits(Limits{PerUser: each, Of: of})
}

// MemoryReleased says that HasMemory may have another answer now.
func (t *Target) MemoryReleased() { t.queue.advanceAll() }

// Connect gives a living connection for a user's next call. The error is a
// *DownError, or that of ctx.
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

// pick finds the living connection where the user has calls already, since SPDK's
// answers follow each other there and long ones should delay their own user; or
// else the least loaded. It has another one made when all are busy.
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

// AcquireSlot waits for a user's slot to have the proxy do work that needs no SPDK, as Call
// waits to send a call, and with the same errors. give ends it.
func (t *Target) AcquireSlot(ctx context.Context, who string) (give func(), err error) {
	slot, err := t.queue.acquire(ctx, who, new(size), t.config.QueueWait)
	if err != nil {
		return nil, err
	}
	return func() { t.queue.release(slot) }, nil
}

// Connections counts the living ones for calls.
func (t *Target) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, (*Conn).broken)
	return len(t.conns)
}

// add makes one more connection, unless the last attempt failed just now.
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
		if t.down == nil { // once, not for every call; Watch tells everybody
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

// InFlight counts the calls under way, those that nobody waits for included.
func (t *Target) InFlight() int { return t.queue.load().InFlight }

// Load is how much is under way and waiting.
func (t *Target) Load() Load { return t.queue.load() }

// Loads are the users' shares of Load.
func (t *Target) Loads() map[string]Load { return t.queue.loads() }

// Close ends all connections, and Watch; what is under way ends with an unknown
// outcome.
func (t *Target) Close() error {
	t.mu.Lock()
	conns, probe := t.conns, t.probe
	if !t.closed {
		close(t.stopped)
	}
	t.conns, t.closed = nil, true
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.socket.Close() // nothing more can be done about a UNIX socket that does not close
	}
	probe.close()
	return nil
}
