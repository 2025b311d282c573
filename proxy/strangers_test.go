package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// dialTLS connects by TLS from an address of this host.
func (s *serving) dialTLS(from string) *rawClient {
	s.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := tls.DialWithDialer(dialer, "tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return newRawClient(s.t, c)
}

// stranger is an unauthenticated request that declares a body but does not send it.
const stranger = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

// The proxy responds to unauthenticated requests without reading their bodies. Even if such
// requests occupy all connections, a new client can connect.
func TestUnauthenticatedRequestsDoNotBlockUsers(t *testing.T) {
	b := newBench(t, "v26.05", withTLS(""), func(c *config.Config) {
		c.Limits.Connections, c.Limits.ConnectionsPerSource = 8, 4
		c.Limits.Read = config.Duration(long)
	})
	b.proxy.web.UnreadBodyWait = long // prevents bodies from timing out
	s := serve(t, b)
	open := func(n int) {
		require.Eventually(t, func() bool { return b.proxy.clients.Open() == n }, long, time.Millisecond)
	}
	for round := range 3 {
		var strangers []*rawClient
		for i := range 8 {
			c := s.dialTLS([]string{"127.0.0.2", "127.0.0.3"}[i%2])
			c.send(stranger)
			strangers = append(strangers, c)
			g := c.answer()
			assert.Equal(t, http.StatusUnauthorized, g.StatusCode)
			assert.True(t, g.Close)
		}
		for range 4 - round {
			user := s.dialTLS("127.0.0.1")
			user.call(version)
			assert.Equal(t, http.StatusOK, user.answer().StatusCode)
			user.call(version)
			assert.Equal(t, http.StatusOK, user.answer().StatusCode, "the user keeps its connection")
			require.NoError(t, user.Close())
			open(7) // the first new connection has evicted an unauthenticated connection
		}
		for _, c := range strangers {
			_ = c.Close() // one of these was evicted, so it is already closed
		}
		open(0)
	}
}

// The proxy waits at most one second for the body of an unauthenticated request, whatever the path
// and the limit for users.
func TestUnauthenticatedRequestsTimeOutEarly(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(time.Hour) })
	assert.LessOrEqual(t, b.proxy.web.UnreadBodyWait, time.Second)
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
