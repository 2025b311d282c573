package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

func behind(clientAddress string, balancers ...string) func(*config.Config) {
	return func(c *config.Config) {
		c.LoadBalancers = config.LoadBalancers{Addresses: balancers, ClientAddress: clientAddress}
		c.Limits.AuthFailuresPerMinute = 1
	}
}

// The client's address is the last address in X-Forwarded-For that does not belong to a load
// balancer.
func TestClientAddressComesFromXForwardedFor(t *testing.T) {
	b := newBench(t, "v26.05", behind(config.XForwardedFor, "127.0.0.1", "203.0.113.0/24", "2001:db8:1::/48"))
	from := func(headers ...string) got {
		r := []string{}
		for _, h := range headers {
			r = append(r, "X-Forwarded-For", h)
		}
		return b.do("POST", "/", "admin", adminPassword, strings.NewReader(version), r...)
	}
	for header, source := range map[string]string{
		"198.51.100.1":      "198.51.100.1",
		"198.51.100.1:4711": "198.51.100.1:4711",
		// the client sent the first address
		"192.0.2.66, 198.51.100.2": "198.51.100.2",
		"nonsense,198.51.100.3":    "198.51.100.3",
		// two load balancers forwarded the request
		"198.51.100.4, 203.0.113.9 , 203.0.113.10:5000": "198.51.100.4",
		"::ffff:198.51.100.5":                           "198.51.100.5",
		"[2001:db8::7]":                                 "2001:db8::7",
		"[2001:db8::7]:99, 2001:db8:1::1":               "[2001:db8::7]:99",
	} {
		require.Equal(t, http.StatusOK, from(header).StatusCode, header)
		assert.Equal(t, source, b.lastCall()["source"], header)
		assert.Equal(t, "127.0.0.1", b.lastCall()["load_balancer"])
	}
	for _, header := range []string{"", "unknown", "198.51.100.1, unknown", "198.51.100.1,", "203.0.113.9", "_hidden"} {
		refused := from(header)
		require.Equal(t, http.StatusBadRequest, refused.StatusCode, header)
		assert.Equal(t, jsonrpc.CodeInvalidRequest, refused.code(t))
		assert.Contains(t, refused.body, "the load balancer at 127.0.0.1 did not send the client's address")
		assert.Equal(t, "unauthenticated", b.lastCall()["decision"])
	}
	require.Equal(t, http.StatusOK, b.do("GET", "/healthz", "", "", nil).StatusCode, "a health check has no client")

	signIn := func(header ...string) got {
		return b.do("POST", "/console/session", "", "", strings.NewReader(passwordOf("admin", adminPassword)), append(header, "Content-Type", "application/json")...)
	}
	require.Equal(t, http.StatusBadRequest, signIn().StatusCode)
	require.Equal(t, http.StatusOK, signIn("X-Forwarded-For", "198.51.100.9").StatusCode)
	assert.Equal(t, "198.51.100.9", b.lastCall()["source"])

	// Failed logins count against the client, not against the load balancer.
	wrong := func(client string) int {
		return b.do("POST", "/", "admin", "wrong", strings.NewReader(version), "X-Forwarded-For", client).StatusCode
	}
	for wrong("192.0.2.1") == http.StatusUnauthorized {
	}
	assert.Equal(t, http.StatusTooManyRequests, wrong("192.0.2.1"))
	assert.Equal(t, http.StatusUnauthorized, wrong("192.0.2.2"))

	other := *b.config
	other.LoadBalancers.Addresses = nil
	require.ErrorContains(t, b.proxy.Reload(&other), "load_balancers has changed")
}

func TestXForwardedForFromUntrustedPeersIsIgnored(t *testing.T) {
	for _, b := range []*bench{newBench(t, "v26.05"), newBench(t, "v26.05", behind(config.XForwardedFor, "203.0.113.9")), newBench(t, "v26.05", behind(config.ProxyProtocol, "127.0.0.1"))} {
		require.Equal(t, http.StatusOK, b.do("POST", "/", "admin", adminPassword, strings.NewReader(version), "X-Forwarded-For", "198.51.100.1").StatusCode)
		assert.Contains(t, b.lastCall()["source"], "127.0.0.1:")
		assert.NotContains(t, b.lastCall(), "load_balancer")
	}
}

// A connection from a load balancer must begin with a PROXY protocol header, even before the TLS
// handshake. The proxy closes connections without a header.
func TestProxyProtocolHeaderIsRequired(t *testing.T) {
	for name, encryption := range map[string]config.TLS{"TLS": {SelfSignedDir: t.TempDir()}, "plaintext": {InsecurePlaintext: true}} {
		t.Run(name, func(t *testing.T) { testProxyProtocol(t, encryption) })
	}
}

func testProxyProtocol(t *testing.T, encryption config.TLS) {
	b := newBench(t, "v26.05", behind(config.ProxyProtocol, "127.0.0.1"), func(c *config.Config) { c.TLS = encryption })
	s := serve(t, b)
	ask := func(header string) (*http.Response, error) {
		c, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		r, err := http.NewRequest(http.MethodPost, "http://proxy/", strings.NewReader(version))
		require.NoError(t, err)
		r.SetBasicAuth("admin", adminPassword)
		_, err = fmt.Fprint(c, header)
		require.NoError(t, err)
		if !encryption.InsecurePlaintext {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		if err := r.Write(c); err != nil {
			return nil, err
		}
		return http.ReadResponse(bufio.NewReader(c), r)
	}
	resp, err := ask("PROXY TCP4 198.51.100.1 192.0.2.99 40000 9009\r\n")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "198.51.100.1:40000", b.lastCall()["source"])
	assert.Equal(t, "127.0.0.1", b.lastCall()["load_balancer"])
	_, err = ask("")
	require.Error(t, err)
	assert.Len(t, b.log.Lines(t, "call"), 1)
}
