package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialTLS connects over TLS from an address of this host.
func (s *serving) dialTLS(from string) *rawClient {
	s.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := tls.DialWithDialer(dialer, "tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return newRawClient(s.t, c)
}

// stranger is a request without credentials that announces a body and sends none.
const stranger = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

// Unauthenticated requests are answered without their bodies, and however many
// of them hold all connections, a new client gets in.
func TestStrangersLockNobodyOut(t *testing.T) {
	b := newBench(t, "v26.05", withTLS(""), func(c *config.Config) {
		c.Limits.Connections, c.Limits.ConnectionsPerSource = 8, 4
		c.Limits.Read = config.Duration(long)
	})
	b.proxy.strangerWait = long // as if no time passed
	s := serve(t, b)
	for round := range 3 {
		for i := range 8 {
			c := s.dialTLS([]string{"127.0.0.2", "127.0.0.3"}[i%2])
			c.send(stranger)
			g := c.answer()
			assert.Equal(t, http.StatusUnauthorized, g.StatusCode)
			assert.True(t, g.Close)
		}
		for range 4 - round {
			user := s.dialTLS("127.0.0.1")
			user.call(version)
			assert.Equal(t, http.StatusOK, user.answer().StatusCode)
			user.call(version)
			assert.Equal(t, http.StatusOK, user.answer().StatusCode, "and keeps its connection")
			require.NoError(t, user.Close())
			require.Eventually(t, func() bool { return b.proxy.sourcesOpen("127.0.0.1/32") == 0 }, long, time.Millisecond)
		}
		for _, source := range []string{"127.0.0.2/32", "127.0.0.3/32"} {
			b.proxy.closeSource(source)
		}
	}
}

// sourcesOpen counts the connections of a source.
func (s *Server) sourcesOpen(source string) (n int) {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for from, of := range s.clients.sources {
		if from.String() == source {
			n += len(of)
		}
	}
	return n
}

// closeSource closes the connections of a source.
func (s *Server) closeSource(source string) {
	s.clients.mu.Lock()
	var open []net.Conn
	for from, of := range s.clients.sources {
		for c := range of {
			if from.String() == source {
				open = append(open, c)
			}
		}
	}
	s.clients.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// What nobody authenticated has announced is waited for a second at most, however
// long users may take, and whatever the path.
func TestUnauthenticatedRequestsEndSoon(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(time.Hour) })
	assert.LessOrEqual(t, b.proxy.strangerWait, time.Second)
	s := serve(t, b)
	var clients []*rawClient
	for _, request := range []string{
		"POST / HTTP/1.1", "PUT /else HTTP/1.1", "GET /healthz HTTP/1.1", "GET /readyz HTTP/1.1", "GET /metrics HTTP/1.1", "GET /openrpc.json HTTP/1.1",
		"POST / HTTP/1.1\r\n" + "Authorization: " + basicHeader("admin", "wrong"),
	} {
		for _, body := range []string{"Content-Length: 10\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"} {
			c := s.dial()
			c.send(request + "\r\nHost: x\r\n" + body)
			clients = append(clients, c)
		}
	}
	for _, c := range clients {
		assert.True(t, c.answer().Close)
		c.closed()
	}
	kept := s.dial()
	for range 2 {
		kept.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.False(t, kept.answer().Close, "a request without a body keeps its connection")
	}
}

// The largest source may have nothing but calls under way: then the next one makes
// room. A connection that was evicted before its user was known begins no call.
func TestEvictionLooksAtEverySource(t *testing.T) {
	s := newConnections(config.Limits{Connections: 5, ConnectionsPerSource: 4}, config.NewLogger(new(logBook), config.Log{Format: "json"}))
	open := func(address string) (*clientConn, bool) { return s.admit(&from{address: address}) }
	for range 3 {
		c, ok := open("192.0.2.1:1")
		require.True(t, ok)
		s.connState(c, http.StateActive)
		require.True(t, s.authenticated(c))
	}
	var second []*clientConn
	for range 2 {
		c, ok := open("192.0.2.2:1")
		require.True(t, ok)
		s.connState(c, http.StateActive)
		second = append(second, c)
	}
	require.True(t, s.authenticated(second[0]))
	_, ok := open("192.0.2.3:1")
	require.True(t, ok, "for one that is not authenticated")
	assert.False(t, s.authenticated(second[1]))
	assert.Equal(t, 5, s.count)

	_, ok = open("192.0.2.4:1")
	assert.False(t, ok, "all others are authenticated, or their source has no more than the newcomer's")
	s.connState(second[0], http.StateIdle)
	s.connState(second[0], http.StateActive)
	_, ok = open("192.0.2.4:1")
	assert.False(t, ok, "a connection stays known")
}
