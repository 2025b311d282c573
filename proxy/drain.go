package proxy

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// inFlight counts the calls under way, so that a stopping server can wait for them.
//
// When the server stops, calls that come soon after on connections that it has
// accepted are still let in: whoever sent one has not been told to go elsewhere,
// and is with the answer. The first calls of new connections are waited for. So a
// restart behind systemd's socket refuses nobody who does not call on and on.
type inFlight struct {
	mu       sync.Mutex
	open     int // connections
	under    int
	arriving map[net.Conn]struct{}
	draining bool
	until    time.Time     // then no call is let in any more
	drained  chan struct{} // closed when draining, and none was under way or arriving
	ended    bool          // drained is closed
}

// arrivalWait is how long a stopping server takes calls on the connections that
// it has accepted, and waits for their first.
const arrivalWait = 2 * time.Second

// enter lets a call in, unless the server has been stopping for a while.
func (c *inFlight) enter(conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining && (c.ended || time.Now().After(c.until)) {
		return errDraining
	}
	delete(c.arriving, conn)
	c.under++
	return nil
}

func (c *inFlight) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
	c.closeIfDrained()
}

// connState is told what becomes of a server's connections.
func (c *inFlight) connState(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
		if c.arriving == nil {
			c.arriving = map[net.Conn]struct{}{}
		}
		c.arriving[conn] = struct{}{}
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		delete(c.arriving, conn)
		c.closeIfDrained()
	}
	if state == http.StateClosed || state == http.StateHijacked {
		c.open--
	}
}

// counts tells how many connections are open, and calls under way.
func (c *inFlight) counts() (open, under int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.under
}

// drain lets no further call in, but those that are on their way. The channel is
// closed when the last one ended. No connection may be accepted any more.
func (c *inFlight) drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining, c.until, c.drained = true, time.Now().Add(arrivalWait), make(chan struct{})
		c.closeIfDrained()
		time.AfterFunc(arrivalWait, c.forgetArrivals)
	}
	return c.drained
}

func (c *inFlight) forgetArrivals() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.arriving)
	c.closeIfDrained()
}

func (c *inFlight) closeIfDrained() {
	if c.draining && c.under == 0 && len(c.arriving) == 0 && !c.ended {
		c.ended = true
		close(c.drained)
	}
}

func (c *inFlight) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}
