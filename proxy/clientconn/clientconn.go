package clientconn

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// HeaderWait limits how long a client may take to send a request's header or to complete the TLS
// handshake. It also limits how long a load balancer may take to send its PROXY protocol header.
const HeaderWait = 10 * time.Second

// WriteWait limits how long a single write to a client may take.
const WriteWait = 30 * time.Second

// Limits contains the limits on the connections of a server's clients.
type Limits struct {
	Connections int           // maximum number in total
	PerSource   int           // maximum number from one address, one IPv6 /64, or one local user
	WriteWait   time.Duration // how long a client may take to read the beginning of a response
	Balancers   Balancers
}

// A Set tracks the connections of a server's clients, and limits their number, in total and per
// source. When the limit is reached, a new connection replaces an evictable connection (idle or
// unauthenticated). Only sources with more connections than the new connection's source are
// considered. From the largest of these sources that has an evictable connection, the Set closes
// the connection that has been evictable for longest. If there is no such connection, the Set
// closes the new connection.
type Set struct {
	limits Limits
	log    *slog.Logger

	mu       sync.Mutex
	sources  map[string]map[*Conn]struct{}
	count    int
	unlogged int // connections closed since the last log message
	loggedAt time.Time
	closed   int // connections closed in total

	unidentifiedAt time.Time // time of the last log message about missing headers
}

// Open returns the number of open connections.
func (s *Set) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Closed returns how many connections were closed because of the limits.
func (s *Set) Closed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// New returns an empty Set, which logs the connections that it closes.
func New(limits Limits, log *slog.Logger) *Set {
	return &Set{limits: limits, log: log, sources: map[string]map[*Conn]struct{}{}}
}

// closedLogInterval is the minimum time between log messages about closed connections.
const closedLogInterval = 10 * time.Second

// admit adds a connection to the set, or closes it.
func (s *Set) admit(c *Conn) (*Conn, bool) {
	c.all, c.writeWait, c.evictable = s, s.limits.WriteWait, time.Now()
	s.mu.Lock()
	evicted, ok := s.add(c)
	if !ok || evicted != nil {
		s.noteClosed(c.from)
	}
	s.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close()
	}
	if !ok {
		_ = c.Conn.Close()
	}
	return c, ok
}

// noteClosed counts a connection that was closed in favor of a new connection from another source.
// Occasionally, it logs such connections.
func (s *Set) noteClosed(from string) {
	s.unlogged++
	s.closed++
	if now := time.Now(); now.Sub(s.loggedAt) > closedLogInterval {
		s.log.Warn("connections closed because too many were open", "source", from, "from_there", len(s.sources[from]), "open", s.count, "closed", s.unlogged)
		s.unlogged, s.loggedAt = 0, now
	}
}

func (s *Set) add(c *Conn) (evicted *Conn, ok bool) {
	conns := s.sources[c.from]
	if len(conns) >= s.limits.PerSource && !c.balancer {
		return nil, false
	}
	if s.count >= s.limits.Connections {
		size := len(conns) + 1 // number of the source's connections
		if c.balancer {
			size = 1 // each connection may belong to a different client
		}
		if evicted = s.evictionCandidate(size); evicted == nil {
			return nil, false
		}
		s.drop(evicted)
	}
	s.hold(c)
	return evicted, true
}

func (s *Set) hold(c *Conn) {
	conns := s.sources[c.from]
	if conns == nil {
		conns = map[*Conn]struct{}{}
		s.sources[c.from] = conns
	}
	conns[c] = struct{}{}
	s.count++
}

// evictionCandidate finds the largest source with an evictable connection, and returns the
// connection of that source that has been evictable for longest. It considers only sources with
// more than moreThan connections. If there is no such connection, it returns nil.
func (s *Set) evictionCandidate(moreThan int) (found *Conn) {
	size := moreThan
	for _, conns := range s.sources {
		if len(conns) <= size {
			continue
		}
		if oldest := oldestEvictable(conns); oldest != nil {
			found, size = oldest, len(conns)
		}
	}
	return found
}

func oldestEvictable(conns map[*Conn]struct{}) (oldest *Conn) {
	for c := range conns {
		if !c.evictable.IsZero() && (oldest == nil || c.evictable.Before(oldest.evictable)) {
			oldest = c
		}
	}
	return oldest
}

// Authenticated protects a connection from eviction until it is idle again. It returns false if the
// connection has already been evicted.
func (s *Set) Authenticated(conn net.Conn) bool {
	c := connOf(conn)
	if c == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.known, c.evictable = true, time.Time{}
	_, open := s.sources[c.from][c]
	return open
}

// NextPart begins another part of a response. The client gets as much time for each part as for a
// whole response, because the previous part may have been sent long ago.
func (s *Set) NextPart(conn net.Conn) {
	if c := connOf(conn); c != nil {
		c.startAnswer()
	}
}

func (s *Set) drop(c *Conn) {
	conns := s.sources[c.from]
	if _, there := conns[c]; !there {
		return
	}
	s.count--
	if delete(conns, c); len(conns) == 0 {
		delete(s.sources, c.from)
	}
}

// sourceOf returns a client's IPv4 address, or the /64 of its IPv6 address, because a single client
// may use every address in a /64.
func sourceOf(a net.Addr) netip.Prefix {
	address, bits := addressOf(a), 64
	if address.Is4() {
		bits = 32
	}
	p, _ := address.Prefix(bits) // connections without an address count as one source
	return p
}

// ConnState records the new state of a connection. It must be called for every change, like
// http.Server.ConnState. An active connection stays evictable until it has sent valid credentials.
func (s *Set) ConnState(conn net.Conn, state http.ConnState) {
	c := connOf(conn)
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

// connOf returns the connection underneath TLS, or nil if the connection does not come from a Set's
// Listener.
func connOf(conn net.Conn) *Conn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

// Listener returns a listener for the connections of l that the Set admits. The source of a
// connection is its remote address.
func (s *Set) Listener(l net.Listener) net.Listener { return listener{l, s.accept} }

// LocalListener is like Listener, but for connections whose source is not an address. sourceOf
// returns the source of a connection.
func (s *Set) LocalListener(l net.Listener, sourceOf func(net.Conn) string) net.Listener {
	return listener{l, func(raw net.Conn) (*Conn, bool) { return s.admit(&Conn{Conn: raw, from: sourceOf(raw)}) }}
}

type listener struct {
	net.Listener
	admit func(net.Conn) (*Conn, bool)
}

func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, ok := l.admit(raw); ok {
			return c, nil
		}
	}
}

// A Conn is a client's connection. It limits how long the client may take to read data.
type Conn struct {
	net.Conn
	all       *Set
	writeWait time.Duration

	header       *proxyproto.Conn // reads from the peer; nil if the peer is the client
	peer         *peerConn
	identified   sync.Once
	unidentified error // the error from reading the header

	// The fields below are guarded by Set.mu.
	from      string
	balancer  bool      // whether from is a load balancer
	evictable time.Time // when the connection became evictable; zero if it is not
	known     bool      // whether the client has sent valid credentials

	mu    sync.Mutex
	began time.Time // start of the current response
	sent  int       // bytes of the response already written
}

func (c *Conn) Close() error {
	if c.all != nil {
		c.all.mu.Lock()
		c.all.drop(c)
		c.all.mu.Unlock()
	}
	return c.Conn.Close()
}

// CloseWrite lets net/http close a connection in such a way that the client can still read the last
// response.
func (c *Conn) CloseWrite() error {
	raw := c.Conn
	if c.header != nil {
		raw = c.peer.Conn
	}
	if w, ok := raw.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (c *Conn) startAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.sent = time.Time{}, 0
}

const (
	// maxWrite is the maximum size of a single write, in bytes. The client must read this much
	// within Limits.WriteWait.
	maxWrite = 64 << 10
	// slowestClient is the minimum number of bytes per second that a client must read after
	// Limits.WriteWait. A minimum is necessary because the proxy keeps unread responses in memory.
	slowestClient = 128 << 10
)

// deadline returns the time by which the client must have read the next piece.
func (c *Conn) deadline(piece int) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.began.IsZero() {
		c.began = now
	}
	c.sent += piece
	whole := c.began.Add(c.writeWait + time.Duration(c.sent)*time.Second/slowestClient)
	if each := now.Add(c.writeWait); each.Before(whole) {
		return each
	}
	return whole
}

func (c *Conn) Write(b []byte) (written int, err error) {
	for {
		piece := b[:min(len(b), maxWrite)]
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
