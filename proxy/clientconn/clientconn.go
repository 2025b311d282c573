package proxy

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// connections bound how many clients are connected, and how many from one source.
// A newcomer at the limit replaces a connection of the largest source that has more
// than the newcomer's and one to spare: the connection that has been idle, or
// unauthenticated, for longest. Without such a source the newcomer is closed.
type connections struct {
	most, perSource int
	log             *slog.Logger

	mu       sync.Mutex
	sources  map[netip.Prefix]map[*clientConn]struct{}
	count    int
	refused  int // since that was last logged
	toldLast time.Time
	closed   int // in all
}

// closedInAll counts the connections that were closed for want of room.
func (s *connections) closedInAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func newConnections(c config.Limits, log *slog.Logger) *connections {
	return &connections{most: c.Connections, perSource: c.ConnectionsPerSource, log: log, sources: map[netip.Prefix]map[*clientConn]struct{}{}}
}

// refusalsLogged is how often the log tells of closed connections.
const refusalsLogged = 10 * time.Second

// admit takes a connection in, or closes it.
func (s *connections) admit(raw net.Conn) (*clientConn, bool) {
	c := &clientConn{Conn: raw, from: sourceOf(raw), all: s, evictable: time.Now()}
	s.mu.Lock()
	evicted, ok := s.enter(c)
	if !ok || evicted != nil {
		s.refused++
		s.closed++
		if now := time.Now(); now.Sub(s.toldLast) > refusalsLogged {
			s.log.Warn("connections closed, as too many were open", "source", c.from, "from_there", len(s.sources[c.from]), "open", s.count, "closed", s.refused)
			s.refused, s.toldLast = 0, now
		}
	}
	s.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	if !ok {
		_ = raw.Close()
	}
	return c, ok
}

func (s *connections) enter(c *clientConn) (evicted *clientConn, ok bool) {
	of := s.sources[c.from]
	if len(of) >= s.perSource {
		return nil, false
	}
	if s.count >= s.most {
		if evicted = s.leastWanted(len(of) + 1); evicted == nil {
			return nil, false
		}
		s.drop(evicted)
	}
	if of = s.sources[c.from]; of == nil {
		of = map[*clientConn]struct{}{}
		s.sources[c.from] = of
	}
	of[c] = struct{}{}
	s.count++
	return evicted, true
}

// leastWanted finds the longest evictable connection of the largest source that has
// one, of all sources with more connections than given. nil: there is none.
func (s *connections) leastWanted(more int) (found *clientConn) {
	size := more
	for _, of := range s.sources {
		if len(of) <= size {
			continue
		}
		if oldest := oldestEvictable(of); oldest != nil {
			found, size = oldest, len(of)
		}
	}
	return found
}

func oldestEvictable(of map[*clientConn]struct{}) (oldest *clientConn) {
	for c := range of {
		if !c.evictable.IsZero() && (oldest == nil || c.evictable.Before(oldest.evictable)) {
			oldest = c
		}
	}
	return oldest
}

// authenticated protects a request's connection from eviction until it is idle. It
// reports false if the connection was evicted before.
func (s *connections) authenticated(conn net.Conn) bool {
	c := clientConnOf(conn)
	if c == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.known, c.evictable = true, time.Time{}
	_, open := s.sources[c.from][c]
	return open
}

func (s *connections) drop(c *clientConn) {
	of := s.sources[c.from]
	if _, there := of[c]; !there {
		return
	}
	s.count--
	if delete(of, c); len(of) == 0 {
		delete(s.sources, c.from)
	}
}

// sourceOf is a client's address, or its network where an address costs nothing.
func sourceOf(c net.Conn) netip.Prefix {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // of a listener's own making: one source
	}
	address, bits := from.Addr().Unmap(), 64
	if address.Is4() {
		bits = 32
	}
	p, _ := address.Prefix(bits) // cannot fail: the address has more
	return p
}

// connState is told what becomes of a server's connections. An active one that has
// never brought valid credentials stays evictable.
func (s *connections) connState(conn net.Conn, state http.ConnState) {
	c := clientConnOf(conn)
	if c == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		c.evictable = time.Now()
	case http.StateActive:
		if c.known {
			c.evictable = time.Time{}
		}
		c.startAnswer()
	default:
		c.evictable = time.Time{}
	}
}

// clientConnOf finds the connection below TLS; nil: it is not a client's.
func clientConnOf(conn net.Conn) *clientConn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*clientConn)
	return c
}

// A clientListener admits clients' connections.
type clientListener struct {
	net.Listener
	all *connections
}

func (l clientListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.all.admit(raw); ok {
			return c, nil
		}
	}
}

// A clientConn gives its client a bounded time to take what is written to it.
type clientConn struct {
	net.Conn
	from netip.Prefix
	all  *connections

	// Under connections.mu.
	evictable time.Time // since when; zero: it is not
	known     bool      // it has brought valid credentials

	mu    sync.Mutex
	began time.Time // the answer that is being written
	sent  int       // of it
}

func (c *clientConn) Close() error {
	if c.all != nil {
		c.all.mu.Lock()
		c.all.drop(c)
		c.all.mu.Unlock()
	}
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection so that its last answer arrives.
func (c *clientConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (c *clientConn) startAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.sent = time.Time{}, 0
}

const (
	// largestWrite is written in one piece; a client has to take it within writeWait.
	largestWrite = 64 << 10
	// slowestClient has a client take, after writeWait, so many bytes of an answer in
	// a second: until then the answer takes memory.
	slowestClient = 128 << 10
)

// deadline is when the client has to have taken the next piece.
func (c *clientConn) deadline(piece int) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.began.IsZero() {
		c.began = now
	}
	c.sent += piece
	whole := c.began.Add(writeWait + time.Duration(c.sent)*time.Second/slowestClient)
	if each := now.Add(writeWait); each.Before(whole) {
		return each
	}
	return whole
}

func (c *clientConn) Write(b []byte) (written int, err error) {
	for {
		piece := b[:min(len(b), largestWrite)]
		if err := c.SetWriteDeadline(c.deadline(len(piece))); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(piece)
		written += n
		if err != nil || n == len(b) {
			return written, err
		}
		b = b[n:]
	}
}
