package clientconn

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// balanced returns a Set and a function that opens connections from a load balancer at 127.0.0.1.
func balanced(t *testing.T, l Limits, log io.Writer) (*Set, func(text string) (client net.Conn, server *Conn)) {
	t.Helper()
	l.Balancers = Balancers{
		Trusted:       func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.1") },
		ProxyProtocol: true, Wait: 200 * time.Millisecond,
	}
	s := New(l, slog.New(slog.NewTextHandler(log, nil)))
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	listener := s.Listener(raw)
	return s, func(text string) (net.Conn, *Conn) {
		client, err := net.Dial("tcp", raw.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		_, err = client.Write([]byte(text))
		require.NoError(t, err)
		server, err := listener.Accept()
		require.NoError(t, err)
		return client, server.(*Conn)
	}
}

// header returns a PROXY protocol header, version 2, with a client's address.
func header(t *testing.T, client string) string {
	t.Helper()
	var b bytes.Buffer
	_, err := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client)), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 99), Port: 9009}).WriteTo(&b)
	require.NoError(t, err)
	return b.String()
}

// A connection from a load balancer counts against the client named in its header.
func TestClientsBehindALoadBalancerAreDistinguished(t *testing.T) {
	s, dial := balanced(t, Limits{Connections: 10, PerSource: 2, WriteWait: time.Second}, io.Discard)
	for text, client := range map[string]string{
		header(t, "198.51.100.1:40000"):                        "198.51.100.1:40000",
		"PROXY TCP4 198.51.100.2 192.0.2.99 40001 9009\r\n":    "198.51.100.2:40001",
		"PROXY TCP6 2001:db8::7 2001:db8::99 40002 9009\r\n":   "[2001:db8::7]:40002",
		header(t, "[2001:db8::7]:4")[:12] + "\x20\x00\x00\x00": "", // LOCAL: a health check
		"PROXY UNKNOWN\r\n":                                    "",
	} {
		peer, c := dial(text + "hello")
		if client == "" {
			client = peer.LocalAddr().String()
		}
		assert.Equal(t, client, c.RemoteAddr().String())
		assert.Equal(t, "127.0.0.1", Peer(c).String())
		b := make([]byte, 3)
		_, err := io.ReadFull(c, b)
		require.NoError(t, err)
		_, err = c.Write([]byte("answer"))
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite())
		answer, err := io.ReadAll(peer)
		require.NoError(t, err)
		assert.Equal(t, "answer", string(answer))
		require.NoError(t, c.Close())
	}
	assert.Zero(t, s.Open())
	assert.Empty(t, s.sources)
}

// Each client has its own limit. Load balancers are subject only to the limit on the total number
// of connections.
func TestLimitsApplyToClientsBehindALoadBalancer(t *testing.T) {
	var log bytes.Buffer
	s, dial := balanced(t, Limits{Connections: 6, PerSource: 2, WriteWait: time.Second}, &log)
	for range 4 { // these connections have sent no header yet
		dial("")
	}
	assert.Equal(t, 4, s.Open())
	for range 2 {
		_, c := dial(header(t, "198.51.100.1:4"))
		require.Equal(t, "198.51.100.1:4", c.RemoteAddr().String())
	}
	_, third := dial(header(t, "198.51.100.1:4")) // replaces one of the load balancer's connections
	assert.Equal(t, 6, s.Open())
	_, err := third.Read(make([]byte, 1))
	require.ErrorIs(t, err, errTooMany)
	assert.Equal(t, 5, s.Open())
	assert.Contains(t, log.String(), "too many were open")
}

// Connections with an invalid header are closed. This is logged if the peer sent any bytes.
func TestInvalidHeadersCloseTheConnection(t *testing.T) {
	var log bytes.Buffer
	s, dial := balanced(t, Limits{Connections: 10, PerSource: 10, WriteWait: time.Second}, &log)
	closed := func(c *Conn, reason error) {
		t.Helper()
		for range 2 {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, reason)
		}
		assert.Zero(t, s.Open())
	}
	_, silent := dial("")
	closed(silent, errNoHeader)
	client, check := dial("")
	require.NoError(t, client.Close())
	closed(check, errNoHeader)
	assert.Empty(t, log.String(), "health checks")

	for text, reason := range map[string]error{
		// the beginning of a TLS handshake
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00": errNoHeader,
		"PROXY TCP4 198.51.100.2 192.0.2.99 x 9009\r\n":        errNoHeader,
		// an address for UDP
		header(t, "198.51.100.1:4")[:13] + "\x12\x00\x0caddressports": errNoAddress,
		header(t, "198.51.100.1:4")[:13] + "\x00\x00\x00" + "unspec":  errNoHeader,
	} {
		_, c := dial(text)
		closed(c, reason)
	}
	assert.Contains(t, log.String(), "configure it to send the PROXY protocol")
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), "not each time")
}

// The proxy accepts a client's address only from load balancers.
func TestOnlyLoadBalancersNameClientAddresses(t *testing.T) {
	s := New(Limits{Connections: 1, PerSource: 1, Balancers: Balancers{Trusted: func(netip.Addr) bool { return false }, ProxyProtocol: true}}, slog.New(slog.DiscardHandler))
	c, ok := s.accept(&from{address: "[::ffff:192.0.2.1]:1"})
	require.True(t, ok)
	assert.Equal(t, "192.0.2.1", Peer(c).String())
	assert.Nil(t, c.header)
	assert.False(t, Peer(&net.TCPConn{}).IsValid(), "not of a Listener")
}
