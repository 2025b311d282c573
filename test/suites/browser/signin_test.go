package browser

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

const credentials = `
listen: "%[1]s"
tls: {self_signed_dir: %[2]s, client_ca_file: %[2]s/clients.crt}
target: {socket: %[3]s/busy.sock}
users:
  - {name: admin, password_hash: "%[7]s", roles: [admin]}
  - {name: robot, token_hashes: ["%[4]s"], roles: [read-only]}
  - {name: dash, certificate: {san_dns: dash.example}, roles: [read-only]}
  - {name: ann, jwt: {issuer: sso, subject: ann@example}, roles: [read-only]}
oidc:
  - name: sso
    issuer: %[5]s
    audience: programs
    ca_file: %[2]s/issuer.crt
    console: {client_id: console, client_secret_file: %[2]s/client.secret, redirect_url: "https://localhost:%[6]s/console/oidc/callback"}
log: {format: json}
`

// A signInProxy is a proxy for the shared target. Its users sign in with a token, with a
// certificate, or through an issuer.
type signInProxy struct {
	*testbed
	dir, token, port string
	clients          *authntest.Authority
	issuer           *authntest.Issuer
}

func newSignInProxy(t *testing.T) *signInProxy {
	t.Helper()
	shared := sharedTestbed(t)
	d := &signInProxy{testbed: &testbed{target: shared.target, log: &logFile{}}, dir: t.TempDir(), token: authn.NewToken(), clients: authntest.NewAuthority(t, "clients"), issuer: authntest.NewIssuer(t)}
	d.issuer.Register("console", "a secret", "ann@example", nil)
	for name, text := range map[string][]byte{"clients.crt": d.clients.PEM(), "issuer.crt": d.issuer.CA, "client.secret": []byte("a secret\n")} {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), text, 0o600))
	}
	address, err := freeAddress()
	require.NoError(t, err)
	_, d.port, err = net.SplitHostPort(address)
	require.NoError(t, err)
	t.Cleanup(d.close)
	hash := authn.HashToken(d.token, time.Time{}).String()
	text := fmt.Sprintf(credentials, address, d.dir, sharedDir, hash, d.issuer.URL, d.port, shared.hash)
	require.NoError(t, d.serve(filepath.Join(sharedDir, "spdk-proxy"), d.dir, address, text))
	return d
}

// signedInAs waits until a user is signed in by the given method.
func (p *page) signedInAs(user, method string) {
	p.t.Helper()
	p.until(`document.title.startsWith("Overview")`)
	p.press(user)
	p.until(`document.querySelector("dialog[open]")?.innerText.includes("Signed in by\n` + method + `")`)
}

func TestUserSignsInWithAToken(t *testing.T) {
	d := newSignInProxy(t)
	p := newPageAt(t, d.testbed)
	p.open("")
	p.press("Use a token")
	p.fill("Token", authn.NewToken())
	p.press("Sign in")
	p.until(`!!document.querySelector("[role=alert]")`)
	assert.Empty(t, eval[string](p, `document.querySelector("input[type=password]").value`), "a refused token must not stay in the form")
	p.fill("Token", d.token)
	p.press("Sign in")
	p.signedInAs("robot", "token")
	assert.NotContains(t, eval[string](p, `JSON.stringify({...localStorage, ...sessionStorage})`), d.token)
}

// Signing in works although the issuer and the console are different sites, so that the browser
// sends no SameSite=Strict cookie when the issuer redirects it back to the console.
func TestBrowserSignsInAtAnIssuer(t *testing.T) {
	d := newSignInProxy(t)
	d.url = strings.Replace(d.url, "127.0.0.1", "localhost", 1)
	p := newPageAt(t, d.testbed)
	p.others = append(p.others, d.issuer.URL)
	p.open("")
	p.press("Sign in with your organization")
	p.comesTo(`document.title.startsWith("Overview")`)
	p.signedInAs("ann", "oidc")
	assert.Equal(t, 1, d.issuer.Exchanges())
	address := eval[string](p, `location.href`)
	assert.NotContains(t, address, "code=")
	p.press("Sign out")
	p.has("You are signed out.")

	d.issuer.Register("console", "a secret", "stranger@example", nil)
	p.press("Sign in with your organization")
	p.comesTo(`document.body?.innerText.includes("no user has its subject and claims")`)
}

// comesTo waits for a page that satisfies a condition. The browser visits other pages first, so it
// is not possible to wait for the condition within a page.
func (p *page) comesTo(condition string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](`!!(`+condition+`)`))
		return err == nil && holds
	}, limit, 50*time.Millisecond, condition)
}

// The browser presents a certificate from its certificate store to the console without prompting
// the user.
func TestUserSignsInWithACertificate(t *testing.T) {
	d := newSignInProxy(t)
	home := t.TempDir()
	pair := d.clients.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dash.example"} })
	certificate, key := authntest.WritePair(t, home, "dash", pair)
	store := filepath.Join(home, ".pki", "nssdb")
	require.NoError(t, os.MkdirAll(store, 0o700))
	for _, args := range [][]string{
		{"openssl", "pkcs12", "-export", "-in", certificate, "-inkey", key, "-name", "dash", "-passout", "pass:", "-out", "dash.p12"},
		{"certutil", "-N", "-d", "sql:" + store, "--empty-password"},
		{"pk12util", "-i", "dash.p12", "-d", "sql:" + store, "-W", ""},
	} {
		require.NoError(t, command(home, args[0], args[1:]...).Run(), args)
	}
	profile := filepath.Join(home, "profile")
	require.NoError(t, os.MkdirAll(filepath.Join(profile, "Default"), 0o700))
	choose, err := json.Marshal(object{"profile": object{"content_settings": object{"exceptions": object{"auto_select_certificate": object{
		d.url + ",*": object{"setting": object{"filters": []object{{}}}},
	}}}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(profile, "Default", "Preferences"), choose, 0o600))

	p := newPageAt(t, d.testbed, chromedp.Env("HOME="+home), chromedp.UserDataDir(profile))
	p.open("")
	p.press("Use the browser's certificate")
	p.signedInAs("dash", "certificate")
}
