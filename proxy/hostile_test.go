package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func asUser(user string) string {
	return "Authorization: " + basicHeader(user, map[string]string{"admin": adminPassword, "viewer": viewerPassword}[user]) + "\r\n"
}

// Hostile clients do not block other users' calls, and nothing that they send reaches SPDK.
func TestHostileClientsDoNotAffectOthers(t *testing.T) {
	post := "POST / HTTP/1.1\r\nHost: x\r\n"
	for _, hostile := range []struct {
		name  string
		send  string
		again string // sent repeatedly, as long as the proxy accepts it
	}{
		{name: "sends nothing"},
		{name: "half a line", send: "POST / HT"},
		{name: "an endless header", send: "POST / HTTP/1.1\r\nHost: x\r\n", again: "X: y\r\n"},
		{name: "a flood of headers", send: post + strings.Repeat("A: b\r\n", 4*web.MaxHeaderBytes)},
		{name: "a long name", send: "POST /" + strings.Repeat("x", 4*web.MaxHeaderBytes)},
		{name: "an unauthenticated body", send: post + "Content-Length: 262144\r\n\r\n{", again: " "},
		{name: "a body that is never sent", send: post + asUser("viewer") + "Content-Length: 262144\r\n\r\n{"},
		{name: "a body that is sent slowly", send: post + asUser("viewer") + "Content-Length: 262144\r\n\r\n{", again: " "},
		{name: "a body with too large a Content-Length", send: post + asUser("viewer") + "Content-Length: 9223372036854775807\r\n\r\n{", again: " "},
		{name: "chunks without end", send: post + asUser("viewer") + "Transfer-Encoding: chunked\r\n\r\n", again: "1\r\n \r\n"},
		{name: "chunk extensions", send: post + asUser("viewer") + "Transfer-Encoding: chunked\r\n\r\n", again: "1;" + strings.Repeat("x", 1000) + "\r\n \r\n"},
		{name: "an endless trailer", send: post + asUser("viewer") + "Transfer-Encoding: chunked\r\n\r\n0\r\n", again: "X: y\r\n"},
		{name: "two lengths", send: post + asUser("viewer") + "Content-Length: 3\r\nContent-Length: 300\r\n\r\n{}"},
		{name: "length and chunks", send: post + asUser("viewer") + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"},
		{name: "expects 100-continue", send: post + "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n"},
		{name: "an unknown expectation", send: post + asUser("viewer") + "Expect: the unexpected\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "requests without reading responses", send: "", again: "GET /openrpc.json HTTP/1.1\r\nHost: x\r\n" + asUser("viewer") + "\r\n"},
		{name: "HTTP/2", send: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", again: "\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
	} {
		t.Run(hostile.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.ConnectionsPerSource = 40 })
			s := serve(t, b)
			for range 20 {
				c := s.dial()
				go func() {
					_, err := io.WriteString(c.Conn, hostile.send)
					for err == nil && hostile.again != "" {
						time.Sleep(time.Millisecond) // limits the test's CPU time
						_, err = io.WriteString(c.Conn, hostile.again)
					}
				}()
			}
			good := s.dial()
			for range 20 {
				good.call(version)
				require.Equal(t, http.StatusOK, good.answer().StatusCode)
			}
			for _, c := range b.target.Calls() {
				assert.Contains(t, []string{"spdk_get_version", "notify_get_types", "framework_get_config"}, c.Method)
			}
		})
	}
}

// The time for reading a request is limited, even if the client sends it slowly or sends nothing.
// So is the time for writing a response.
func TestHostileConnectionsAreClosed(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Limits.Read, c.Limits.Idle = config.Duration(time.Second), config.Duration(20*time.Millisecond)
	})
	s := serve(t, b)
	for name, request := range map[string]struct {
		send   string
		status int
	}{
		"chunks without end": {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408},
		"too many chunks":    {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("x", 500)+"\r\n \r\n", 200), 400},
		"too much in chunks": {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("10000\r\n"+strings.Repeat(" ", 1<<16)+"\r\n", 5), 413},
		"length and chunks":  {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400},
		"announced too long": {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Content-Length: 262145\r\n\r\n{", 413},
		"two lengths":        {"POST / HTTP/1.1\r\nHost: x\r\n" + asUser("admin") + "Content-Length: 3\r\nContent-Length: 300\r\n\r\n{}", 400},
		"a body of a GET":    {"GET /openrpc.json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", 401},
		"a body of a scrape": {"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", 401},
		"unauthenticated":    {"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", 401},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial()
			go func() { _, _ = io.WriteString(c.Conn, request.send) }()
			assert.Equal(t, request.status, c.answer().StatusCode)
			c.closed()
		})
	}
	t.Run("plain HTTP instead of a TLS handshake", func(t *testing.T) {
		c := s.dial()
		c.send("\x16\x03\x01\x02\x00\x01\x00")
		require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		_, _ = io.ReadAll(c.r)
	})
	require.Eventually(t, func() bool {
		return b.proxy.clients.Open() == 0
	}, long, time.Millisecond, "and the connection no longer counts")
}

// The proxy refuses calls that another site's page causes an administrator's browser to send. The
// log contains the administrator's name.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	pages := []string{"/metrics", "/metrics/target", "/openrpc.json"}
	for name, header := range map[string][]string{
		"a browser":                        {"Sec-Fetch-Site", "cross-site"},
		"another port":                     {"Sec-Fetch-Site", "same-site"},
		"a browser without Sec-Fetch-Site": {"Origin", "https://evil.example"},
		"a file or sandbox":                {"Origin", "null"},
	} {
		g := b.do("POST", "/", "admin", adminPassword, strings.NewReader(createMalloc), append(header, "Content-Type", "text/plain")...)
		assert.Equal(t, http.StatusForbidden, g.StatusCode, name)
		assert.Contains(t, g.body, "Nothing was executed")
		line := b.lastCall()
		assert.Equal(t, "admin", line["user"])
		assert.EqualValues(t, http.StatusForbidden, line["status"])
		g = b.do("POST", "/", "", "", strings.NewReader(createMalloc), header...)
		assert.Equal(t, http.StatusUnauthorized, g.StatusCode, "an unauthenticated client learns nothing")
		for _, path := range pages {
			assert.Equal(t, http.StatusForbidden, b.do("GET", path, "admin", adminPassword, nil, header...).StatusCode, "%s: GET %s", name, path)
		}
	}
	assert.Empty(t, b.reached())
	for name, header := range map[string][]string{
		"a page of the proxy": {"Sec-Fetch-Site", "same-origin"},
		"the address bar":     {"Sec-Fetch-Site", "none"},
		"an older browser":    {"Origin", b.http.URL},
		"curl, Prometheus":    nil,
	} {
		assert.Equal(t, http.StatusOK, b.do("POST", "/", "admin", adminPassword, strings.NewReader(version), header...).StatusCode, name)
		for _, path := range pages {
			assert.Equal(t, http.StatusOK, b.do("GET", path, "admin", adminPassword, nil, header...).StatusCode, "%s: GET %s", name, path)
		}
	}
}

// Only authenticated clients receive a response to Expect: 100-continue.
func TestContinueIsSentOnlyToAuthenticatedClients(t *testing.T) {
	c := serve(t, newBench(t, "v26.05")).dial()
	c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\n%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", asUser("admin"), len(version)))
	g := c.answer()
	require.Equal(t, http.StatusContinue, g.StatusCode)
	c.send(version)
	assert.Equal(t, http.StatusOK, c.answer().StatusCode)
}

// Pipelined requests on one connection receive their responses in order.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 20 * time.Millisecond})
	c := serve(t, b).dial()
	go func() {
		for range 50 {
			c.call(createMalloc)
			c.call(version)
		}
	}()
	for i := range 100 {
		g := c.answer()
		require.Equal(t, http.StatusOK, g.StatusCode)
		assert.Equal(t, i%2 == 1, strings.Contains(g.body, `"version"`), i)
	}
}

// The proxy supports neither old TLS versions nor HTTP/2.
func TestOldTLSAndHTTP2AreRefused(t *testing.T) {
	s := serve(t, newBench(t, "v26.05", withTLS("")))
	_, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}})
		require.NoError(t, err)
		assert.Equal(t, version, c.ConnectionState().Version)
		assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
		require.NoError(t, c.Close())
	}
}

// The configuration can further restrict TLS versions and cipher suites. A reload applies such a
// restriction.
func TestTLSVersionAndSuitesCanBeRestricted(t *testing.T) {
	b := newBench(t, "v26.05", withTLS(""))
	s := serve(t, b)
	dial := func(version uint16) (*tls.Conn, error) {
		return tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: version})
	}
	reload := func(change func(c *config.TLS)) {
		changed := *b.config
		change(&changed.TLS)
		require.NoError(t, b.proxy.Reload(&changed))
	}
	reload(func(c *config.TLS) { c.CipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"} })
	c, err := dial(tls.VersionTLS12)
	require.NoError(t, err)
	assert.Equal(t, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, c.ConnectionState().CipherSuite)
	require.NoError(t, c.Close())

	reload(func(c *config.TLS) { c.MinVersion = "1.3" })
	_, err = dial(tls.VersionTLS12)
	require.ErrorContains(t, err, "protocol version")
	c, err = dial(tls.VersionTLS13)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// The number of connections from one source is limited. Further connections are closed before the
// TLS handshake, while existing connections stay open.
func TestConnectionsPerSourceAreLimited(t *testing.T) {
	s := serve(t, newBench(t, "v26.05", withTLS(""), func(c *config.Config) { c.Limits.ConnectionsPerSource = 3 }))
	var open []*rawClient
	for range 3 {
		c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, newRawClient(t, c))
	}
	_, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
	require.Error(t, err)
	for _, c := range open {
		c.call(version)
		assert.Equal(t, http.StatusOK, c.answer().StatusCode)
	}
	require.NoError(t, s.proxy.Alive(t.Context()), "the watchdog does not need a connection")
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool {
		c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, long, time.Millisecond)
}
