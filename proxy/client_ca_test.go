package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

// A reload that removes a certificate authority immediately affects open connections, resumed
// sessions and new connections.
func TestReloadRemovesAnAuthority(t *testing.T) {
	for name, change := range map[string][]string{
		"replaced by another authority":   nil,
		"no authority remains":            {"  client_ca_file: client-ca.crt        # the authorities that sign client certificates\n", "", "  client_auth: optional                # required: every client must present a valid certificate\n", "", "    certificate: {san_dns: dashboard.example}\n", "    password_hash_file: $CREDENTIALS_DIRECTORY/secrets_admin.hash\n"},
		"replaced, certificates required": {"client_auth: optional", "client_auth: required"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGatehouse(t)
			pair := g.authority.Client(named("dashboard.example"))
			kept, resuming := g.client(&pair), g.client(&pair)
			connections, _ := dialed(kept)
			_, resumed := dialed(resuming)
			for range 2 {
				for _, client := range []*http.Client{kept, resuming} {
					answer, err := g.ask(client)
					require.NoError(t, err)
					require.Equal(t, 200, answer.StatusCode)
				}
				resuming.CloseIdleConnections()
			}
			require.Equal(t, 1, *connections)
			require.True(t, *resumed, "the session must be resumed, or this test checks nothing")

			g.file("client-ca.crt", authntest.NewAuthority(t, "clients").PEM())
			require.NoError(t, g.proxy.Reload(g.load(change...)))
			answer, err := g.ask(kept)
			require.NoError(t, err)
			assert.Equal(t, 1, *connections)
			assert.Equal(t, 401, answer.StatusCode)
			assert.Contains(t, answer.body, "on a new connection")
			assert.True(t, answer.Close)
			for _, client := range []*http.Client{resuming, g.client(&pair)} {
				if answer, err = g.ask(client); err == nil {
					assert.Equal(t, 401, answer.StatusCode)
				}
			}
			assert.NotEqual(t, "allow", g.lastCall()["decision"])

			// Unless certificates are required, the proxy still accepts an Authorization header on
			// a connection with a certificate that is no longer valid.
			answer, err = g.ask(kept, basicHeader("admin", adminPassword))
			if strings.Contains(name, "required") {
				assert.Error(t, err)
			} else if assert.NoError(t, err) {
				assert.Equal(t, 200, answer.StatusCode)
			}
		})
	}
}

// A reload that removes a user's certificate name takes effect immediately. An invalid
// configuration changes nothing.
func TestReloadAppliesToClientCertificates(t *testing.T) {
	g := newGatehouse(t)
	pair := g.authority.Client(named("dashboard.example"))
	client := g.client(&pair)
	status := func() int {
		answer, err := g.ask(client)
		require.NoError(t, err)
		return answer.StatusCode
	}
	require.Equal(t, 200, status())
	bad := g.load("dashboard.example", "other.example")
	g.file("client-ca.crt", []byte("none"))
	require.ErrorContains(t, g.proxy.Reload(bad), "client_ca_file")
	assert.Equal(t, 200, status(), "the old configuration remains in effect")
	g.file("client-ca.crt", g.authority.PEM())
	require.NoError(t, g.proxy.Reload(g.load("dashboard.example", "other.example")))
	assert.Equal(t, 401, status())
	require.NoError(t, g.proxy.Reload(g.load()))
	assert.Equal(t, 200, status())

	// A new revocation list takes effect immediately.
	revoking := func(list []byte) error {
		next := g.load()
		g.file("client-ca.crl", list)
		next.TLS.ClientCRLFile = filepath.Join(g.dir, "client-ca.crl")
		return g.proxy.Reload(next)
	}
	require.NoError(t, revoking(g.authority.Revoke(time.Now())))
	assert.Equal(t, 200, status())
	assert.Regexp(t, `\nspdk_proxy_client_crl_expiry_timestamp_seconds [1-9]`, g.scrape())
	require.NoError(t, revoking(g.authority.Revoke(time.Now(), pair.Leaf)))
	assert.Equal(t, 401, status())
	require.ErrorContains(t, revoking([]byte("none")), "contains no PEM-encoded certificate revocation list")
	require.ErrorContains(t, revoking(g.authority.PEM()), "is not a certificate revocation list")

	// The proxy watches the files of authorities and credentials, so renewing a file causes a
	// reload.
	files := strings.Join(g.load().Files(), " ")
	for _, name := range []string{"client-ca.crt", "cluster-1-ca.crt", "backup.tokens", "secrets_admin.hash"} {
		assert.Contains(t, files, name)
	}
}

// dialed counts a client's connections, and records whether the last connection resumed a TLS
// session.
func dialed(client *http.Client) (count *int, resumed *bool) {
	count, resumed = new(int), new(bool)
	transport := client.Transport.(*http.Transport)
	transport.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		*count++
		conn, err := (&tls.Dialer{Config: transport.TLSClientConfig}).DialContext(ctx, network, addr)
		if err == nil {
			*resumed = conn.(*tls.Conn).ConnectionState().DidResume
		}
		return conn, err
	}
	return count, resumed
}
