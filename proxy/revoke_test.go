package proxy

import (
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/cert"
)

// runbook runs documented commands in the proxy's directory. It applies systemctl commands to the
// proxy.
func (g *gatehouse) runbook(commands string) {
	bin := g.t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("another password"), bcrypt.MinCost)
	require.NoError(g.t, err)
	for name, script := range map[string]string{
		"systemctl":  "echo $@ >> " + bin + "/asked",
		"spdk-proxy": "case \"$1 $2\" in 'hash-password ') ;; 'hash-password --out') exec > \"$3\" ;; *) exit 1 ;; esac; echo '" + string(hash) + "'",
	} {
		require.NoError(g.t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	commands = strings.NewReplacer(
		" -g spdk-proxy", "", "/etc/spdk-proxy/secrets/", os.Getenv("CREDENTIALS_DIRECTORY")+"/secrets_", "/etc/spdk-proxy", g.dir,
		"01234567", authn.HashToken(g.token, time.Time{}).ID(),
	).Replace(commands)
	shell := exec.CommandContext(g.t.Context(), "sh", "-euc", commands)
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	require.NoError(g.t, err, "%s", out)
	asked, err := os.ReadFile(filepath.Join(bin, "asked"))
	require.NoError(g.t, err)
	require.Contains(g.t, []string{"reload spdk-proxy\n", "restart spdk-proxy\n"}, string(asked))
	g.reload()
}

func (g *gatehouse) reload() {
	c, err := loadAndCheck(filepath.Join(g.dir, "spdk-proxy.yaml"))
	require.NoError(g.t, err)
	require.NoError(g.t, g.proxy.Reload(c))
}

// The documented commands immediately revoke a credential of any kind, even on open connections,
// and even if it is the user's only credential. Other credentials remain valid.
func TestDocumentedRevocationTakesEffectImmediately(t *testing.T) {
	blocks := documented(t, "docs/authentication.md", "Revoke a credential now", "console")
	require.Len(t, blocks, 4)
	type way struct {
		client *http.Client
		header []string
	}
	for i, revoked := range []string{"token", "password", "certificate", "JWT"} {
		t.Run(revoked, func(t *testing.T) {
			g := newGatehouse(t)
			pair := g.authority.Client(named("dashboard.example"))
			ways := map[string]way{
				"token": {g.client(nil), []string{"Bearer " + g.token}}, "password": {g.client(nil), []string{basicHeader("admin", adminPassword)}},
				"certificate": {g.client(&pair), nil}, "JWT": {g.client(nil), []string{"Bearer " + g.csiToken(csiAudience, csiSubject, nil)}},
			}
			statuses := func() map[string]int {
				found := map[string]int{}
				for name, w := range ways {
					answer, err := g.ask(w.client, w.header...)
					require.NoError(t, err)
					found[name] = answer.StatusCode
				}
				return found
			}
			want := map[string]int{"token": 200, "password": 200, "certificate": 200, "JWT": 200}
			require.Equal(t, want, statuses())
			g.runbook(blocks[i])
			want[revoked] = 401
			assert.Equal(t, want, statuses())
		})
	}
}

// Removing a user's only token, in any of the possible ways, revokes it.
func TestRemovedTokenIsRevoked(t *testing.T) {
	for name, take := range map[string]func(file string) error{
		"an empty file":  func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"a comment":      func(file string) error { return os.WriteFile(file, []byte("# none\n"), 0o600) },
		"a missing file": os.Remove,
		"a missing token": func(file string) error {
			return os.WriteFile(file, []byte(authn.HashToken(authn.NewToken(), time.Time{}).String()), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGatehouse(t)
			client := g.client(nil)
			answer, err := g.ask(client, "Bearer "+g.token)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, answer.StatusCode)
			require.NoError(t, take(filepath.Join(g.dir, "backup.tokens")))
			c := g.load()
			require.NoError(t, g.proxy.Reload(c))
			answer, err = g.ask(client, "Bearer "+g.token)
			require.NoError(t, err)
			assert.Equal(t, http.StatusUnauthorized, answer.StatusCode)
			if name != "a missing token" {
				require.Len(t, c.Warnings(), 1)
				assert.Contains(t, c.Warnings()[0], "user backup has no token")
			}
		})
	}
}

// Both the proxy, when it starts, and check-config refuse world-writable files.
func TestWorldWritableFilesAreRejected(t *testing.T) {
	for _, name := range []string{"tls.key", "tls.crt", "backup.tokens", "client-ca.crt", "cluster-1-ca.crt", "spdk-proxy.yaml"} {
		g := newGatehouse(t)
		own := g.load("self_signed_dir: /var/lib/spdk-proxy", "cert_file: tls.crt\n  key_file: tls.key")
		_, err := NewServer(own, Options{})
		require.NoError(t, err)
		path := filepath.Join(g.dir, name)
		require.NoError(t, os.Chmod(path, 0o602))
		_, err = loadAndCheck(filepath.Join(g.dir, "spdk-proxy.yaml"))
		require.ErrorContains(t, err, "chmod o-w "+path, "check-config")
		if name != "spdk-proxy.yaml" {
			_, err = NewServer(own, Options{})
			require.ErrorContains(t, err, "chmod o-w "+path, "the start")
		}
	}
	g := newGatehouse(t)
	require.NoError(t, os.Chmod(filepath.Join(g.dir, "tls.key"), 0o604))
	c := g.load("self_signed_dir: /var/lib/spdk-proxy", "cert_file: tls.crt\n  key_file: tls.key")
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "every user of this host may read")
}

// A TLS file that is missing from the service's secrets causes the same error as any other missing
// file.
func TestMissingTLSFilesAreReported(t *testing.T) {
	g := newGatehouse(t)
	const secret = "$CREDENTIALS_DIRECTORY/secrets_none"
	text, err := os.ReadFile(filepath.Join(g.dir, "spdk-proxy.yaml"))
	require.NoError(t, err)
	for _, change := range [][2]string{
		{"self_signed_dir: .", "cert_file: tls.crt\n  key_file: " + secret},
		{"self_signed_dir: .", "cert_file: " + secret + "\n  key_file: tls.key"},
		{"client_ca_file: client-ca.crt", "client_ca_file: " + secret},
	} {
		require.Contains(t, string(text), change[0])
		g.file("other.yaml", []byte(strings.Replace(string(text), change[0], change[1], 1)))
		_, err := loadAndCheck(filepath.Join(g.dir, "other.yaml"))
		require.ErrorContains(t, err, "then restart the service", change[1])
		require.ErrorContains(t, err, secret)
	}
}

// A self-signed certificate in memory survives reloads.
func TestReloadKeepsASelfSignedCertificate(t *testing.T) {
	b := newBench(t, "v26.05", withTLS(""))
	shown := func() *tls.Certificate { return b.proxy.cert.Current() }
	first := shown()
	for range 2 {
		require.NoError(t, b.proxy.Reload(b.config))
		assert.Same(t, first, shown())
	}
	other := *b.config
	other.TLS.SelfSignedDir = t.TempDir()
	require.NoError(t, b.proxy.Reload(&other))
	assert.NotEqual(t, cert.Fingerprint(first), cert.Fingerprint(shown()))
	require.NoError(t, b.proxy.Reload(b.config))
	assert.Same(t, first, shown())
	assert.Len(t, b.log.Lines(t, "the certificate is self-signed and changes at each start, so clients cannot verify it: set tls.self_signed_dir, or tls.cert_file and tls.key_file"), 1)
}
