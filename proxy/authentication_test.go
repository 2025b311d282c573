package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A gatehouse is a TLS server for the proxy configured in docs/authentication.md, with test
// credentials of every kind.
type gatehouse struct {
	*serving
	dir       string
	socket    string // the simulated target's socket
	authority *authntest.Authority
	issuer    *authntest.Issuer
	token     string // token of the user backup
}

const (
	csiSubject   = "system:serviceaccount:spdkcsi:spdkcsi-controller-sa"
	csiAudience  = "spdk-proxy"
	documentedAt = "https://192.0.2.1:6443/openid/v1/jwks"
)

func (g *gatehouse) file(name string, content []byte) {
	require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, name), content, 0o600))
}

// load returns the documented configuration, adapted to the test's paths and addresses.
func (g *gatehouse) load(change ...string) *config.Config {
	example := documented(g.t, "docs/authentication.md", "Set up authentication", "yaml")[0]
	require.Contains(g.t, example, documentedAt)
	for i := 0; i < len(change); i += 2 {
		require.Contains(g.t, example, change[i], "this change changes nothing")
	}
	text := strings.NewReplacer(append([]string{
		`"0.0.0.0:9009"`, `"127.0.0.1:0"`, "/var/lib/spdk-proxy", ".", documentedAt, g.issuer.URL + "/keys",
	}, change...)...).Replace(example)
	g.file("spdk-proxy.yaml", []byte(text+"target: {socket: "+g.socket+"}\nlimits: {auth_failures_per_minute: 6000}\n"))
	c, err := loadAndCheck(filepath.Join(g.dir, "spdk-proxy.yaml"))
	require.NoError(g.t, err)
	return c
}

func newGatehouse(t *testing.T, change ...string) *gatehouse {
	g := &gatehouse{dir: t.TempDir(), authority: authntest.NewAuthority(t, "clients"), issuer: authntest.NewIssuer(t), token: authn.NewToken()}
	b := newBench(t, "v26.05", func(c *config.Config) {
		g.serving = &serving{bench: &bench{t: t}}
		handOver(t, map[string]string{"admin": adminPassword})
		g.file("backup.tokens", []byte(authn.HashToken(g.token, time.Time{}).String()))
		g.file("client-ca.crt", g.authority.PEM())
		g.file("cluster-1-ca.crt", g.issuer.CA)
		g.socket = c.Target.Socket
		*c = *g.load(change...)
	})
	g.serving = serve(t, b)
	return g
}

// client returns a client that opens a new connection for each request.
func (g *gatehouse) client(pair *tls.Certificate) *http.Client {
	c := &tls.Config{RootCAs: trust(g.t, filepath.Join(g.dir, "tls.crt")), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if pair != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: c}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask makes a call that all users in this test may make.
func (g *gatehouse) ask(client *http.Client, headers ...string) (got, error) {
	r, err := http.NewRequest("POST", "https://"+g.addr, strings.NewReader(version))
	require.NoError(g.t, err)
	if headers != nil {
		r.Header["Authorization"] = headers
	}
	resp, err := client.Do(r)
	if err != nil {
		return got{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return got{resp, string(text)}, nil
}

// unmerged flushes the audit log, so that the next unauthenticated request gets its own line.
func (g *gatehouse) unmerged() {
	g.proxy.auditLog.Flush()
}

func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = []string{name} }
}

func (g *gatehouse) csiToken(audience, subject string, more map[string]any) string {
	claims := map[string]any{"iss": "https://kubernetes.default.svc.cluster.local"}
	for k, v := range more {
		claims[k] = v
	}
	return g.issuer.Token(audience, subject, claims)
}

// Every kind of credential, valid and invalid, alone and combined, has the documented outcome.
func TestCredentialsHaveTheDocumentedOutcomes(t *testing.T) {
	g := newGatehouse(t)
	pair := func(p tls.Certificate) *tls.Certificate { return &p }
	dashboard, nobodys := pair(g.authority.Client(named("dashboard.example"))), pair(g.authority.Client(named("other.example")))
	old := pair(g.authority.Client(func(c *x509.Certificate) { named("dashboard.example")(c); c.NotAfter = time.Now().Add(-time.Minute) }))
	strange := pair(authntest.NewAuthority(t, "clients").Client(named("dashboard.example")))
	csi, bearer := g.csiToken(csiAudience, csiSubject, nil), func(token string) string { return "Bearer " + token }
	public, id := g.issuer.Key()
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	forged := authntest.SignAs(t, []byte(`{"iss":"https://kubernetes.default.svc.cluster.local","aud":"spdk-proxy","sub":"`+csiSubject+`","exp":4102444800}`), jose.HS256, publicDER, id)

	for name, c := range map[string]struct {
		headers     []string
		certificate *tls.Certificate
		user, auth  string // if user is empty, the status is 401
		says        string
	}{
		"no credentials":                   {says: "HTTP Basic"},
		"password":                         {headers: []string{basicHeader("admin", adminPassword)}, user: "admin", auth: "basic"},
		"wrong password":                   {headers: []string{basicHeader("admin", "x")}, auth: "basic"},
		"unknown name":                     {headers: []string{basicHeader("eve", adminPassword)}, auth: "basic"},
		"user without a password":          {headers: []string{basicHeader("backup", g.token)}, auth: "basic"},
		"token":                            {headers: []string{bearer(g.token)}, user: "backup", auth: "token"},
		"unknown token":                    {headers: []string{bearer(authn.NewToken())}, auth: "token"},
		"truncated token":                  {headers: []string{bearer(g.token[:30])}, auth: "token", says: "incomplete or mistyped"},
		"certificate":                      {certificate: dashboard, user: "dashboard", auth: "certificate"},
		"certificate of no user":           {certificate: nobodys, auth: "certificate", says: `to add a user with one of san_dns \"other.example\"`},
		"expired certificate":              {certificate: old, auth: "certificate", says: "expired"},
		"certificate of another authority": {certificate: strange, auth: "certificate", says: "does not trust, or no longer trusts"},
		"JWT":                              {headers: []string{bearer(csi)}, user: "csi", auth: "jwt"},
		"JWT for another audience":         {headers: []string{bearer(g.csiToken("vault", csiSubject, nil))}, auth: "jwt", says: `with the audience \"spdk-proxy\"`},
		"JWT of another account":           {headers: []string{bearer(g.csiToken(csiAudience, "system:serviceaccount:x:y", nil))}, auth: "jwt", says: "no user has its subject"},
		"expired JWT":                      {headers: []string{bearer(g.csiToken(csiAudience, csiSubject, map[string]any{"exp": 1e9}))}, auth: "jwt", says: "expired on 2001"},
		"JWT of another issuer":            {headers: []string{bearer(g.csiToken(csiAudience, csiSubject, map[string]any{"iss": g.issuer.URL}))}, auth: "jwt"},
		"unsigned JWT":                     {headers: []string{bearer(authntest.Unsigned(t, g.issuer.Claims(csiAudience, csiSubject, map[string]any{"iss": "https://kubernetes.default.svc.cluster.local"})))}, auth: "jwt"},
		"JWT signed with the public key":   {headers: []string{bearer(forged)}, auth: "jwt"},
		"password and certificate":         {headers: []string{basicHeader("admin", adminPassword)}, certificate: dashboard, user: "admin", auth: "basic"},
		"password, certificate of another authority": {headers: []string{basicHeader("admin", adminPassword)}, certificate: strange, user: "admin", auth: "basic"},
		"wrong password, certificate":                {headers: []string{basicHeader("admin", "x")}, certificate: dashboard, auth: "basic"},
		"wrong token, certificate":                   {headers: []string{bearer(authn.NewToken())}, certificate: dashboard, auth: "token"},
		"unknown scheme, certificate":                {headers: []string{"Negotiate x"}, certificate: dashboard},
		"two headers":                                {headers: []string{basicHeader("admin", adminPassword), bearer(g.token)}},
		"two headers, certificate":                   {headers: []string{bearer(g.token), bearer(g.token)}, certificate: dashboard},
	} {
		t.Run(name, func(t *testing.T) {
			g.unmerged()
			answer, err := g.ask(g.client(c.certificate), c.headers...)
			require.NoError(t, err)
			line := g.lastCall()
			assert.Equal(t, c.auth, line["auth"])
			if c.user != "" {
				assert.Equal(t, 200, answer.StatusCode, answer.body)
				assert.Equal(t, c.user, line["user"])
				assert.Equal(t, "allow", line["decision"])
				return
			}
			assert.Equal(t, 401, answer.StatusCode)
			assert.Equal(t, jsonrpc.CodeUnauthorized, answer.code(t))
			assert.Contains(t, answer.body, "authentication failed: ")
			assert.Contains(t, answer.body, c.says)
			assert.Equal(t, []string{`Basic realm="spdk-proxy", charset="UTF-8"`, `Bearer realm="spdk-proxy"`}, answer.Header["Www-Authenticate"])
			assert.True(t, answer.Close, "a client can use another certificate only on a new connection")
			assert.Equal(t, "unauthenticated", line["decision"])
		})
	}
	log := g.log.String()
	for what, secret := range map[string]string{"token": g.token[9:], "JWT": strings.Split(csi, ".")[2], "password": adminPassword} {
		assert.NotContains(t, log, secret, what)
	}
	for _, credential := range []string{authn.HashToken(g.token, time.Time{}).ID(), csiSubject, dashboard.Leaf.SerialNumber.Text(16)} {
		assert.Contains(t, log, `"credential":"`+credential+`"`)
	}
	assert.Equal(t, 1, g.issuer.Fetches())
}

// Error messages mention only passwords if neither tokens nor issuers are configured.
func TestErrorsMentionOnlyConfiguredMethods(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.do("POST", "/", "", "", strings.NewReader(version))
	assert.Equal(t, []string{`Basic realm="spdk-proxy", charset="UTF-8"`}, g.Header["Www-Authenticate"])
}

// If client certificates are required, the TLS handshake fails without a certificate.
func TestRequiredCertificatesAreEnforced(t *testing.T) {
	g := newGatehouse(t, "client_auth: optional", "client_auth: required")
	right := basicHeader("admin", adminPassword)
	dashboard, nobodys := g.authority.Client(named("dashboard.example")), g.authority.Client(named("other.example"))
	strange := authntest.NewAuthority(t, "clients").Client(named("dashboard.example"))
	for _, pair := range []*tls.Certificate{nil, &strange} {
		_, err := g.ask(g.client(pair), right)
		require.Error(t, err)
	}
	assert.Empty(t, g.log.Lines(t, "call"))
	for user, c := range map[string]struct {
		pair    tls.Certificate
		headers []string
	}{"dashboard": {dashboard, nil}, "admin": {nobodys, []string{right}}} {
		answer, err := g.ask(g.client(&c.pair), c.headers...)
		require.NoError(t, err)
		assert.Equal(t, 200, answer.StatusCode)
		assert.Equal(t, user, g.lastCall()["user"])
	}
}

// While an issuer is unavailable, the proxy asks the issuer's users to retry, even if the proxy
// starts during the outage. Other users are not affected.
func TestUnavailableIssuerAffectsOnlyItsUsers(t *testing.T) {
	g := newGatehouse(t)
	g.issuer.SetAway(true)
	client := g.client(nil)
	for range 30 {
		answer, err := g.ask(client, "Bearer "+g.csiToken(csiAudience, csiSubject, nil))
		require.NoError(t, err)
		assert.Equal(t, 503, answer.StatusCode)
		assert.Equal(t, jsonrpc.CodeUnreachable, answer.code(t))
		assert.Empty(t, answer.Header["Www-Authenticate"])
		assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	}
	assert.Contains(t, g.lastCall()["error"], "503 Service Unavailable")
	assert.Equal(t, 1, g.issuer.Fetches())
	for _, header := range []string{basicHeader("admin", adminPassword), "Bearer " + g.token} {
		answer, err := g.ask(client, header)
		require.NoError(t, err)
		assert.Equal(t, 200, answer.StatusCode)
	}

	// Once the proxy has fetched the issuer's keys, tokens remain valid during an outage and after
	// a reload.
	g = newGatehouse(t)
	client, token := g.client(nil), "Bearer "+g.csiToken(csiAudience, csiSubject, nil)
	answer, err := g.ask(client, token)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode)
	g.issuer.SetAway(true)
	require.NoError(t, g.proxy.Reload(g.load()))
	answer, err = g.ask(client, token)
	require.NoError(t, err)
	assert.Equal(t, 200, answer.StatusCode)
}

// A flood of forged tokens causes only a few requests to the issuer, and does not delay other
// clients at the same address.
func TestFloodOfForgedTokensIsContained(t *testing.T) {
	g := newGatehouse(t)
	client := g.client(nil)
	claims := []byte(`{"iss":"https://kubernetes.default.svc.cluster.local","aud":"spdk-proxy","sub":"x","exp":4102444800}`)
	other := authntest.NewIssuer(t).Private()
	statuses, began := map[int]int{}, time.Now()
	for n := range 200 {
		token := authntest.SignAs(t, claims, jose.RS256, other, "made-up-"+string(rune('a'+n%26))+string(rune('a'+n/26)))
		answer, err := g.ask(client, "Bearer "+token)
		require.NoError(t, err)
		statuses[answer.StatusCode]++
	}
	assert.Equal(t, 200, statuses[401]+statuses[429])
	assert.LessOrEqual(t, g.issuer.Fetches(), 2+int(time.Since(began)/(10*time.Second)), "one in ten seconds")
	for _, header := range []string{"Bearer " + g.csiToken(csiAudience, csiSubject, nil), basicHeader("admin", adminPassword), "Bearer " + g.token} {
		answer, err := g.ask(client, header)
		require.NoError(t, err)
		assert.Equal(t, 200, answer.StatusCode, answer.body)
	}
}
