package clientconn

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
)

// Balancers configures peers that connect on behalf of many clients.
type Balancers struct {
	// Trusted reports whether a peer is a load balancer. If Trusted is nil, no peer is trusted. A
	// load balancer may have more connections than other sources.
	Trusted func(netip.Addr) bool
	// ProxyProtocol means that each connection from a load balancer begins with a PROXY protocol
	// header with the client's address.
	ProxyProtocol bool
	// Wait limits how long the proxy waits for a PROXY protocol header.
	Wait time.Duration
}

var (
	errNoHeader  = errors.New("a load balancer sent no valid PROXY protocol header")
	errNoAddress = errors.New("the PROXY protocol header contains no client address")
	errTooMany   = errors.New("the client has too many connections")
)

// accept adds a connection to the set, or closes it. A connection from a load balancer counts
// against the load balancer until its header has been read.
func (s *Set) accept(raw net.Conn) (*Conn, bool) {
	from := sourceOf(raw.RemoteAddr())
	b := s.limits.Balancers
	if b.Trusted == nil || !b.Trusted(addressOf(raw.RemoteAddr())) {
		return s.admit(&Conn{Conn: raw, from: from.String()})
	}
	c := &Conn{Conn: raw, from: from.String(), balancer: true}
	if b.ProxyProtocol {
		c.peer = &peerConn{Conn: raw}
		c.header = proxyproto.NewConn(c.peer, proxyproto.SetReadHeaderTimeout(b.Wait))
		c.Conn = c.header
	}
	return s.admit(c)
}

// identify waits for the header of a connection from a load balancer, and then counts the
// connection against the client's address.
func (c *Conn) identify() error {
	if c.header == nil {
		return nil
	}
	c.identified.Do(func() {
		if c.unidentified = c.readHeader(); c.unidentified != nil {
			c.all.noteUnidentified(c)
			_ = c.Close()
		}
	})
	return c.unidentified
}

func (c *Conn) readHeader() error {
	header := c.header.ProxyHeader()
	switch {
	case header == nil:
		return errNoHeader
	case header.Command.IsLocal():
		return nil // the load balancer's own connection, such as a health check
	}
	client, _, ok := header.TCPAddrs()
	if !ok || !addressOf(client).IsValid() {
		return errNoAddress
	}
	if !c.all.move(c, sourceOf(client).String()) {
		return errTooMany
	}
	return nil
}

// noteUnidentified occasionally logs that load balancers send no headers. A connection without any
// bytes is a health check.
func (s *Set) noteUnidentified(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); c.peer.some.Load() && now.Sub(s.unidentifiedAt) > closedLogInterval {
		s.log.Warn("connection of a load balancer closed: configure it to send the PROXY protocol", "source", c.from, "error", c.unidentified)
		s.unidentifiedAt = now
	}
}

// move counts a load balancer's connection against another source. It returns false if that source
// has too many connections, or if the connection has been closed.
func (s *Set) move(c *Conn, from string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.sources[c.from][c]; !open {
		return false
	}
	if len(s.sources[from]) >= s.limits.PerSource {
		s.noteClosed(from)
		return false
	}
	s.drop(c)
	c.from, c.balancer = from, false
	s.hold(c)
	return true
}

// Read reads the client's data after the PROXY protocol header. A PROXY protocol error ends the
// connection.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.identify(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// RemoteAddr returns the client's address. On a connection from a load balancer, it waits for the
// header.
func (c *Conn) RemoteAddr() net.Addr {
	_ = c.identify() // on failure, Read returns the error
	return c.Conn.RemoteAddr()
}

// Peer returns the address of a connection from a Listener: the client's own address, or that of a
// load balancer. For other connections, the address is invalid.
func Peer(conn net.Conn) netip.Addr {
	c := connOf(conn)
	if c == nil {
		return netip.Addr{}
	}
	if c.header != nil {
		return addressOf(c.peer.RemoteAddr())
	}
	return addressOf(c.Conn.RemoteAddr())
}

// A peerConn is a load balancer's connection, including its header.
type peerConn struct {
	net.Conn
	some atomic.Bool // whether at least one byte has been read
}

func (p *peerConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && !p.some.Load() {
		p.some.Store(true)
	}
	return n, err
}

func addressOf(a net.Addr) netip.Addr {
	from, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{} // for example the address of a UNIX socket
	}
	return from.Addr().Unmap().WithZone("")
}
