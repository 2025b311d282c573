package gate

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// inFlight counts the requests in progress, so that a stopping server can wait for them.
//
// A server that begins to stop still accepts requests on open connections for arrivalWait, because
// clients learn only from a response that the server is stopping. It also waits for the first
// request on each accepted connection. As a result, if systemd owns the socket, a restart loses no
// calls except those of clients that never pause.
type inFlight struct {
	mu       sync.Mutex
	open     int                   // number of open connections
	running  int                   // number of running requests
	arriving map[net.Conn]struct{} // accepted connections on which no request has arrived yet
	draining bool
	until    time.Time     // while draining, requests that arrive later are refused
	drained  chan struct{} // closed when draining and no request is running or arriving
	ended    bool          // whether drained is closed
	left     chan struct{} // closed when draining and no connection is open
	nobody   bool          // whether left is closed
}

// arrivalWait is how long a stopping server accepts requests on open connections, and waits for the
// first request on each of them.
const arrivalWait = 2 * time.Second

// enter counts a request until leave is called. If the server began to stop more than arrivalWait
// ago, it returns ErrDraining.
func (c *inFlight) enter(conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining && (c.ended || time.Now().After(c.until)) {
		return ErrDraining
	}
	delete(c.arriving, conn)
	c.running++
	return nil
}

func (c *inFlight) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.closeIfDrained()
}

// connState counts connections. It is called for every change of a connection's state.
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
		c.closeIfLeft()
	}
}

// counts returns the numbers of open connections and running requests.
func (c *inFlight) counts() (open, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.running
}

// drain begins to stop the server. After arrivalWait, enter refuses requests. drained is closed
// when the last request has ended, and left is closed when no connection is open. The caller must
// have closed the listener.
func (c *inFlight) drain() (drained, left <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining, c.until, c.drained, c.left = true, time.Now().Add(arrivalWait), make(chan struct{}), make(chan struct{})
		c.closeIfDrained()
		c.closeIfLeft()
		time.AfterFunc(arrivalWait, c.forgetArrivals)
	}
	return c.drained, c.left
}

// RefuseArrivals ends the period in which a stopping proxy still accepts requests.
func (g *Gate) RefuseArrivals() {
	g.inFlight.mu.Lock()
	defer g.inFlight.mu.Unlock()
	g.inFlight.until = time.Now().Add(-time.Second)
}

func (c *inFlight) forgetArrivals() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.arriving)
	c.closeIfDrained()
}

func (c *inFlight) closeIfDrained() {
	if c.draining && c.running == 0 && len(c.arriving) == 0 && !c.ended {
		c.ended = true
		close(c.drained)
	}
}

func (c *inFlight) closeIfLeft() {
	if c.draining && c.open == 0 && !c.nobody {
		c.nobody = true
		close(c.left)
	}
}

func (c *inFlight) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}
