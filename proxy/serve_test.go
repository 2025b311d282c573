package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// serving is a bench with a proxy that listens at a socket, as in production.
type serving struct {
	*bench
	addr string
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, b *bench) *serving {
	l, err := b.proxy.Listen()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{bench: b, addr: l.Addr().String(), stop: stop, done: make(chan error, 1)}
	go func() { s.done <- b.proxy.Serve(ctx, l) }()
	t.Cleanup(stop)
	return s
}

// A rawClient writes bytes and reads HTTP responses on one connection.
type rawClient struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *serving) dial() *rawClient {
	c, err := net.Dial("tcp", s.addr)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return newRawClient(s.t, c)
}

func newRawClient(t *testing.T, c net.Conn) *rawClient { return &rawClient{t, c, bufio.NewReader(c)} }

func (c *rawClient) send(text string) {
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

func (c *rawClient) call(body string) {
	c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s", basicHeader("admin", adminPassword), len(body), body))
}

func (c *rawClient) answer() got {
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return got{resp, string(body)}
}

func (c *rawClient) closed() {
	_, err := c.r.ReadByte()
	require.Error(c.t, err)
}

const version = `{"id":1,"method":"spdk_get_version"}`

func TestDrainWaitsForRunningCalls(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	kept, late, slow, fresh := s.dial(), s.dial(), s.dial(), s.dial()
	for _, c := range []*rawClient{kept, late} {
		c.call(version)
		assert.Equal(t, 200, c.answer().StatusCode)
	}

	// Delay the target's response until the test has made its checks.
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 300 * time.Millisecond})
	slow.call(createMalloc)
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	s.stop()
	require.Eventually(t, b.proxy.gate.Draining, long, time.Millisecond)

	for _, c := range []*rawClient{kept, fresh} {
		c.call(version)
		g := c.answer()
		assert.Equal(t, 200, g.StatusCode, "the connection was accepted before draining")
		assert.True(t, g.Close, "the proxy closes it during draining")
	}
	assert.Equal(t, 503, b.do("GET", "/readyz", "", "", nil).StatusCode)

	b.proxy.gate.RefuseArrivals()
	late.call(version)
	g := late.answer()
	assert.Equal(t, 503, g.StatusCode)
	assert.Contains(t, g.body, "Nothing was executed")
	assert.True(t, g.Close, "on a new connection")

	g = slow.answer()
	assert.Equal(t, 200, g.StatusCode, "calls in flight are completed")
	assert.Contains(t, g.body, "m0")
	require.NoError(t, <-s.done)
	_, err := net.Dial("tcp", s.addr)
	require.Error(t, err)
}

func TestDrainTimesOut(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Drain = config.Duration(10 * time.Millisecond) })
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Do: spdktest.Hang})
	s := serve(t, b)
	slow := s.dial()
	slow.call(createMalloc)
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	s.stop()
	require.NoError(t, <-s.done)
	assert.Len(t, b.log.Lines(t, "stopping although calls are still running"), 1)
}

func TestSlowBodiesAreDisconnected(t *testing.T) {
	s := serve(t, newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(20 * time.Millisecond) }))
	c := s.dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: " + basicHeader("admin", adminPassword) + "\r\nContent-Length: 100\r\n\r\n{")
	g := c.answer()
	assert.Equal(t, 408, g.StatusCode)
	c.closed()
}

// A call may take longer than the read timeout for request bodies.
func TestSlowCallsAreNotDisconnected(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(20 * time.Millisecond) })
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 100 * time.Millisecond})
	c := serve(t, b).dial()
	c.call(createMalloc)
	assert.Equal(t, 200, c.answer().StatusCode)
	c.call(version)
	assert.Equal(t, 200, c.answer().StatusCode, "the connection is kept")
}

// An unauthenticated client cannot keep a connection open by withholding its body.
func TestUnauthenticatedBodiesAreDisconnected(t *testing.T) {
	s := serve(t, newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(20 * time.Millisecond) }))
	for _, request := range []string{"POST / HTTP/1.1", "PUT /else HTTP/1.1", "GET /healthz HTTP/1.1"} {
		c := s.dial()
		c.send(request + "\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		c.answer()
		c.closed()
	}
}

func TestUnfinishedBodyIsRejected(t *testing.T) {
	b := newBench(t, "v26.05")
	c := serve(t, b).dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: " + basicHeader("admin", adminPassword) + "\r\nContent-Length: 100\r\n\r\n" + version)
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "call")) == 1 }, long, time.Millisecond)
	assert.EqualValues(t, statusClientGone, b.lastCall()["status"])
	assert.Empty(t, b.reached())
}

func TestMalformedChunksAreRejected(t *testing.T) {
	c := serve(t, newBench(t, "v26.05")).dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: " + basicHeader("admin", adminPassword) + "\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n")
	g := c.answer()
	assert.Equal(t, 400, g.StatusCode)
	assert.Contains(t, g.body, "valid chunks")
}

func TestLongHeadersAreRejected(t *testing.T) {
	c := serve(t, newBench(t, "v26.05")).dial()
	c.send("POST / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*web.MaxHeaderBytes) + "\r\n\r\n")
	assert.Equal(t, 431, c.answer().StatusCode)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	c := serve(t, newBench(t, "v26.05", func(c *config.Config) { c.Limits.Idle = config.Duration(time.Millisecond) })).dial()
	c.call(version)
	assert.Equal(t, 200, c.answer().StatusCode)
	c.closed()
}

func withTLS(dir string) func(*config.Config) {
	return func(c *config.Config) { c.TLS = config.TLS{SelfSignedDir: dir} }
}

func trust(t *testing.T, certFile string) *x509.CertPool {
	text, err := os.ReadFile(certFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	return pool
}

func TestSelfSignedCertificateIsCreatedAndServed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	b := newBench(t, "v26.05", withTLS(dir))
	s := serve(t, b)
	info, err := os.Stat(filepath.Join(dir, "tls.key"))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())

	caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: "https://" + s.addr, Username: "admin", Password: adminPassword, CA: trust(t, filepath.Join(dir, "tls.crt"))})
	require.NoError(t, err)
	var v spdkrpc.FrameworkVersion
	require.NoError(t, caller.Call(t.Context(), "spdk_get_version", nil, &v))
	assert.Contains(t, v.Version, "v26.05")

	const msg = "the certificate is self-signed: clients must trust a copy of cert_file, or compare the fingerprint (sha256)"
	require.NoError(t, b.proxy.Reload(b.config))
	lines := b.log.Lines(t, msg)
	require.Len(t, lines, 1, "the warning is logged once per certificate, not per reload")
	assert.Equal(t, "WARN", lines[0]["level"])
	assert.Equal(t, filepath.Join(dir, "tls.crt"), lines[0]["cert_file"])
	assert.Regexp(t, "^([0-9A-F]{2}:){31}[0-9A-F]{2}$", lines[0]["sha256"])

	again := newBench(t, "v26.05", withTLS(dir))
	assert.Equal(t, lines[0]["sha256"], again.log.Lines(t, msg)[0]["sha256"], "the certificate is kept across a restart")

	fleeting := newBench(t, "v26.05", withTLS(""))
	assert.Contains(t, fleeting.log.String(), "so clients cannot verify it")

	for _, name := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	for range 2 {
		require.NoError(t, b.proxy.Reload(b.config))
	}
	lines = b.log.Lines(t, msg)
	require.Len(t, lines, 2, "the warning is logged again for a new certificate")
	assert.NotEqual(t, lines[0]["sha256"], lines[1]["sha256"])

	require.NoError(t, os.Remove(filepath.Join(dir, "tls.crt")))
	_, err = NewServer(b.config, Options{})
	require.ErrorContains(t, err, "remove both", "nothing is overwritten")
}

func TestOldTLSVersionsAndHTTP2AreNotServed(t *testing.T) {
	s := serve(t, newBench(t, "v26.05", withTLS("")))
	_, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	require.Error(t, err)
	c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	assert.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
	assert.GreaterOrEqual(t, c.ConnectionState().Version, uint16(tls.VersionTLS12))
	require.NoError(t, c.Close())

	plain := s.dial()
	plain.call(version)
	assert.Equal(t, 400, plain.answer().StatusCode, "HTTP without TLS is refused")
}

func TestReloadAppliesNewSettings(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, "v26.05", withTLS(dir))
	asViewer := func() int {
		return b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc)).StatusCode
	}
	require.Equal(t, 403, asViewer())
	before := b.proxy.cert.Current()

	c := *b.config
	c.Roles = map[string]config.Role{"viewer": {Allow: rules("*")}}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, b.proxy.Reload(&c))
	assert.Equal(t, 200, asViewer())
	assert.NotEqual(t, cert.Fingerprint(before), cert.Fingerprint(b.proxy.cert.Current()))

	for name, change := range map[string]func(*config.Config){
		"unsound":            func(c *config.Config) { c.Roles = map[string]config.Role{"viewer": {Allow: rules("nope")}} },
		"takes a restart":    func(c *config.Config) { c.Target.Socket = "/else" },
		"limits.drain":       func(c *config.Config) { c.Limits.Drain++ },
		"certificate is not": func(c *config.Config) { c.TLS = config.TLS{CertFile: "/none", KeyFile: "/none"} },
	} {
		bad := c
		bad.Users = bad.Users[:1] // without the user viewer
		change(&bad)
		require.Error(t, b.proxy.Reload(&bad), name)
		assert.Equal(t, 200, asViewer(), "the old configuration remains in effect")
	}

	c.Users = c.Users[:1]
	require.NoError(t, b.proxy.Reload(&c))
	assert.Equal(t, 401, asViewer(), "the cached password is no longer valid")
}

// Clients written for rpc_http_proxy.py work with spdk-proxy.
func TestRpcHTTPProxyClientsWork(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	b.post(createMalloc)
	t.Run("OpenStack Cinder", func(t *testing.T) {
		for range 3 { // each on a new connection, with the same id
			c := s.dial()
			body := `{"jsonrpc": "2.0", "method": "bdev_lvol_get_lvstores", "id": 1}`
			c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", basicHeader("admin", adminPassword), len(body), body))
			g := c.answer()
			assert.Equal(t, 200, g.StatusCode)
			assert.Equal(t, `{"jsonrpc":"2.0","id":1,"result":[]}`+"\n", g.body)
		}
	})
	t.Run("spdk-csi", func(t *testing.T) {
		g := b.do("POST", "/", "admin", adminPassword, strings.NewReader(`{"jsonrpc":"2.0","method":"bdev_get_bdevs","id":42,"params":{"name":"m0"}}`), "Content-Type", "application/json")
		assert.Equal(t, 200, g.StatusCode)
		assert.Contains(t, g.body, `"id":42,"result":[{`)
		g = b.do("POST", "/", "admin", adminPassword, strings.NewReader(`{"jsonrpc":"2.0","method":"bdev_get_bdevs","id":43,"params":{"name":"gone"}}`), "Content-Type", "application/json")
		assert.Equal(t, 200, g.StatusCode)
		assert.Contains(t, g.body, "No such device", "spdk-csi looks for this text")
	})
	t.Run("spdkrpc", func(t *testing.T) {
		caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: "http://" + s.addr, Username: "admin", Password: adminPassword})
		require.NoError(t, err)
		client := spdkrpc.NewClient(caller)
		release, err := client.Release(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rpcschema.MustRelease("v26.05"), release)
		_, err = client.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: new("gone")})
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	})
}

func TestLongResponsesAreForwarded(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	for i := range 2000 {
		b.post(fmt.Sprintf(`{"method":"bdev_malloc_create","params":{"name":"m%d","num_blocks":2048,"block_size":512}}`, i))
	}
	g := b.do("POST", "/", "admin", adminPassword, strings.NewReader(`{"id":1,"method":"bdev_get_bdevs"}`))
	assert.Equal(t, 200, g.StatusCode)
	assert.EqualValues(t, len(g.body), g.ContentLength)
	assert.Greater(t, len(g.body), 1<<20)

	c := s.dial()
	c.call(`{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Len(t, c.answer().body, len(g.body))
}

// For an IPv4 address, systemd's socket listens only on IPv4. So does the proxy without that
// socket.
func TestIPv4AddressListensOnlyOnIPv4(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Listen = "0.0.0.0:0" })
	l, err := b.proxy.Listen()
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	assert.Regexp(t, `^0\.0\.0\.0:\d+$`, l.Addr().String())
}
