package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

func TestNewTokenPrintsTokenAndHash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte("# of the backup"), 0o600)) // without a final newline
	o := run(t, "", "new-token", "--hash-file", file, "--days", "90", "--comment", "host a")
	assert.Zero(t, o.code)
	assert.Regexp(t, `^spdkgate_[0-9A-Za-z]{46}\n$`, o.stdout)
	assert.Empty(t, o.stderr)
	assert.Zero(t, run(t, "", "new-token", "--hash-file", file).code)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Regexp(t, `^# of the backup\nsha256:[0-9a-f]{64} not_after=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ # host a\nsha256:[0-9a-f]{64}\n$`, string(text))
	assert.NotContains(t, string(text), strings.TrimSpace(o.stdout))

	o = run(t, "", "new-token")
	assert.Regexp(t, `^token_hashes: \["sha256:[0-9a-f]{64}"\]\n$`, o.stderr)
	for says, args := range map[string][]string{
		"accepts no arguments": {"spdkgate_x"},
		"must not be negative": {"--days", "-1"},
		"must be one line":     {"--comment", "a\nb"},
	} {
		o := run(t, "", append([]string{"new-token"}, args...)...)
		assert.Equal(t, exitUsage, o.code)
		assert.Contains(t, o.stderr, says)
		assert.Empty(t, o.stdout)
	}
	o = run(t, "", "new-token", "--hash-file", filepath.Join(file, "no directory"))
	assert.Equal(t, exitFailed, o.code)
	assert.Empty(t, o.stdout, "a token is not printed if its hash was not written")
}

// A new token and a new client certificate allow calls until a reload removes them.
func TestTokenAndCertificateAllowCallsUntilRemoved(t *testing.T) {
	target, dir := target(t), t.TempDir()
	authority := authntest.NewAuthority(t, "clients")
	cert, key := authntest.WritePair(t, dir, "dashboard", authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }))
	in := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(in("client-ca.crt"), authority.PEM(), 0o600))
	token := run(t, "", "new-token", "--hash-file", in("tokens"))
	require.NoError(t, os.WriteFile(in("token"), []byte(token.stdout), 0o600))
	require.NoError(t, os.WriteFile(in("config.yaml"), fmt.Appendf(nil, `
listen: "127.0.0.1:0"
tls: {self_signed_dir: ., client_ca_file: client-ca.crt}
target: {socket: %s}
users:
  - {name: backup, token_hash_file: tokens, roles: [admin]}
  - {name: dashboard, certificate: {san_dns: dashboard.example}, roles: [read-only]}
`, target.Socket()), 0o600))
	require.Zero(t, run(t, "", "check-config", in("config.yaml")).code)
	d := start(t, nil, "serve", "--config", in("config.yaml"))
	call := func(args ...string) outcome {
		return run(t, "", append([]string{"call", "--url", d.url, "--ca", in("tls.crt")}, args...)...)
	}
	assert.Zero(t, call("--token-file", in("token"), "bdev_malloc_create", "num_blocks=2048", "block_size=512").code)
	assert.Zero(t, call("--cert", cert, "--key", key, "bdev_get_bdevs").code)
	assert.Equal(t, exitDenied, call("--cert", cert, "--key", key, "bdev_malloc_create", "num_blocks=2048", "block_size=512").code, "the user of the certificate has the role read-only")
	assert.Zero(t, call("--token-file", in("token"), "--cert", cert, "--key", key, "bdev_malloc_create", "num_blocks=2048", "block_size=512").code, "the token decides, not the certificate")
	assert.Contains(t, call("--cert", cert, "spdk_get_version").stderr, "client certificate")
	assert.Equal(t, exitUsage, call("--token-file", in("token"), "--user", "admin", "spdk_get_version").code)
	assert.Equal(t, exitUsage, call("--key", key, "spdk_get_version").code)

	other := run(t, "", "new-token")
	require.NoError(t, os.WriteFile(in("tokens"), []byte(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(other.stderr), `token_hashes: ["`), `"]`)), 0o600))
	require.NoError(t, os.WriteFile(in("client-ca.crt"), authntest.NewAuthority(t, "others").PEM(), 0o600))
	d.waitFor(`"msg":"reloaded"`) // the service detects the change
	o := call("--token-file", in("token"), "spdk_get_version")
	assert.Equal(t, exitDenied, o.code)
	assert.Contains(t, o.stderr, "authentication failed: ")
	o = call("--cert", cert, "--key", key, "spdk_get_version")
	assert.Equal(t, exitDenied, o.code)
	assert.Contains(t, o.stderr, "does not trust, or no longer trusts")
	assert.NotContains(t, d.log.String(), strings.TrimSpace(token.stdout))
}
