package driver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

// clients counts the connections and calls of a server. It is a [stats.Handler].
type clients struct {
	mu             sync.Mutex
	conns, running int
	changed        chan struct{} // closed at the next change; nil if no call waits for it
}

func (c *clients) change(conns, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns += conns
	c.running += running
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *clients) state() (conns, running int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.conns, c.running, c.changed
}

// linger waits until no client is connected or no call has run for the duration quiet, but at most
// for the duration most.
func (c *clients) linger(quiet, most time.Duration) {
	limit := time.NewTimer(most)
	defer limit.Stop()
	for {
		conns, running, changed := c.state()
		if conns == 0 {
			return
		}
		var silence <-chan time.Time
		if running == 0 {
			silence = time.After(quiet)
		}
		select {
		case <-changed:
		case <-silence:
			return
		case <-limit.C:
			return
		}
	}
}

// TagConn and the other methods implement [stats.Handler].
func (c *clients) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *clients) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *clients) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.change(1, 0)
	case *stats.ConnEnd:
		c.change(-1, 0)
	}
}

func (c *clients) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.Begin:
		c.change(0, 1)
	case *stats.End:
		c.change(0, -1)
	}
}
