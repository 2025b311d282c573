package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// calls counts the calls under way, so that a stopping server can wait for them.
type calls struct {
	mu       sync.Mutex
	under    int
	draining bool
	drained  chan struct{} // closed when draining and none was under way
	ended    bool          // drained is closed
}

// enter lets a call in, unless the server is stopping. The first call of a
// connection is let in even then: the connection was accepted before, there are
// only so many of them, and whoever opened one anew has not been told to go
// elsewhere. So a restart behind systemd's socket refuses nobody.
func (c *calls) enter(first bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining && !first {
		return errDraining
	}
	c.under++
	return nil
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
	c.closeIfDrained()
}

func (c *calls) closeIfDrained() {
	if c.draining && c.under == 0 && !c.ended {
		c.ended = true
		close(c.drained)
	}
}

// drain lets no further call in. The channel is closed when the last one ended.
func (c *calls) drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining, c.drained = true, make(chan struct{})
		c.closeIfDrained()
	}
	return c.drained
}

func (c *calls) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

type calledKey struct{}

// withCalled lets firstCall know the connections of a server.
func withCalled(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, calledKey{}, new(atomic.Bool))
}

// firstCall tells whether a request is the first one on its connection that asks so.
func firstCall(r *http.Request) bool {
	called, ok := r.Context().Value(calledKey{}).(*atomic.Bool)
	return ok && !called.Swap(true)
}
