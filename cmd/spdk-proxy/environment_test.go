package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If a shell redirects a printed secret to a file, only the file's owner can read it.
func TestFilesWithPrintedSecretsArePrivate(t *testing.T) {
	for _, args := range [][]string{{"new-token"}, {"hash-password"}} {
		for before, after := range map[os.FileMode]os.FileMode{0o644: 0o600, 0o664: 0o600, 0o640: 0o640, 0o600: 0o600} {
			path := filepath.Join(t.TempDir(), "secret")
			f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
			require.NoError(t, err)
			require.NoError(t, f.Chmod(before))
			cmd := command(t.Context(), args...)
			cmd.Stdin, cmd.Stdout = strings.NewReader("correct horse\n"), f
			require.NoError(t, cmd.Run())
			info, err := f.Stat()
			require.NoError(t, err)
			assert.Equal(t, after, info.Mode().Perm(), "%s into a file of mode %o", args[0], before)
			assert.NotZero(t, info.Size())
			require.NoError(t, f.Close())
		}
	}
}

// A call through a socket ignores the environment variables described in the manual.
func TestSocketCallIgnoresTheEnvironment(t *testing.T) {
	target := target(t)
	path := writeConfig(t, target.Socket(), "")
	d := start(t, nil, "serve", "--config", path)
	ca := filepath.Join(filepath.Dir(path), "tls.crt")
	in := func(environment []string, args ...string) outcome {
		cmd := command(t.Context(), args...)
		cmd.Env = append(cmd.Env, environment...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	}
	url := "SPDK_PROXY_URL=" + d.url
	assert.Zero(t, in([]string{url}, "call", "--socket", target.Socket(), "spdk_get_version").code)
	assert.Contains(t, in([]string{url}, "schema", "drift", "--socket", target.Socket()).stdout, "methods")
	assert.Equal(t, exitUsage, in(nil, "call", "--socket", target.Socket(), "--url", d.url, "spdk_get_version").code)

	assert.Zero(t, in([]string{url, "SPDK_PROXY_CA=" + ca}, "call", "--user", "admin", "spdk_get_version").code)
	o := in([]string{url}, "call", "--user", "admin", "spdk_get_version")
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, "--ca or $SPDK_PROXY_CA")
	o = in([]string{url, "SPDK_PROXY_CA=/none"}, "call", "--user", "admin", "spdk_get_version")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "$SPDK_PROXY_CA: ")
	o = in([]string{url, "SPDK_PROXY_CA=/none"}, "call", "--user", "admin", "--ca", ca, "bdev_malloc_create", "num_blocks=0", "block_size=512")
	assert.NotContains(t, o.stderr, "invalid parameters: invalid parameters")
}
