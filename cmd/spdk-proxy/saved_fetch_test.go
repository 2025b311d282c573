package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// If a storage server is lost together with its saved configuration, a copy on another host
// restores the target.
func TestFetchedConfigurationRestoresATarget(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "target")
	target := target(t)
	config := writeConfig(t, target.Socket(), "")
	change(t, config, "target: {socket: "+target.Socket()+"}", fmt.Sprintf("target: {socket: %q, save: {dir: %q}}", target.Socket(), saved))
	change(t, config, "users: [", "users: [{name: looker, password_hash_file: hash, roles: [read-only]}, {name: backup, password_hash_file: hash, roles: [backup]}, ")
	change(t, config, "roles: {", "roles: {backup: {allow: [spdkgate_config_list_saved, spdkgate_config_get_saved]}, ")
	d := start(t, nil, "serve", "--config", config)
	at := []string{"--url", d.url, "--ca", filepath.Join(filepath.Dir(config), "tls.crt")}
	must := func(args ...string) string {
		t.Helper()
		o := run(t, "", append(args, at...)...)
		require.Zero(t, o.code, "%v: %s", args, o.stderr)
		return o.stdout
	}
	call := func(args ...string) { must(append([]string{"call", "--user", "admin"}, args...)...) }
	copies := filepath.Join(t.TempDir(), "storage1")
	fetch := func() string { return must("saved", "fetch", copies, "--user", "backup") }

	call("bdev_null_create", "name=n1", "num_blocks=1024", "block_size=512")
	call("spdkgate_config_save")
	assert.Regexp(t, `[1-9] files? copied to `+copies, fetch())
	assert.Contains(t, fetch(), "0 files copied to "+copies)
	first, err := os.ReadFile(filepath.Join(saved, "current.json"))
	require.NoError(t, err)
	call("bdev_null_create", "name=n2", "num_blocks=1024", "block_size=512")
	call("spdkgate_config_save")
	fetch()
	versions := func(dir string) (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(t, err)
			assert.EqualValues(t, 0o600, info.Mode().Perm(), e.Name())
			names = append(names, e.Name())
		}
		return names
	}
	assert.Equal(t, versions(saved), versions(copies), "the same files with the same names")
	kept := 0
	for _, name := range versions(copies) {
		text, err := os.ReadFile(filepath.Join(copies, name))
		require.NoError(t, err)
		original, err := os.ReadFile(filepath.Join(saved, name))
		require.NoError(t, err)
		assert.Equal(t, string(original), string(text), name)
		if string(text) == string(first) {
			kept++
		}
	}
	assert.Equal(t, 1, kept, "the previous version")

	// A user who must not see secrets cannot fetch a copy, even without the secrets.
	o := run(t, "", append([]string{"saved", "fetch", filepath.Join(t.TempDir(), "none"), "--user", "looker"}, at...)...)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "the user's roles hide secrets")
	assert.Contains(t, o.stdout, "0 files copied")

	d.stop()
	require.NoError(t, target.Close())
	require.NoError(t, os.RemoveAll(saved))
	o = run(t, "", append([]string{"saved", "fetch", copies, "--user", "backup"}, at...)...)
	assert.Equal(t, exitUnreachable, o.code, "a timer's unit fails when the host is lost")

	// The new server is set up as docs/backup.md describes.
	require.NoError(t, os.Rename(copies, saved))
	assert.Contains(t, run(t, "", "saved", "--dir", saved, "prepare").stdout, "calls")
	again, err := spdktest.Start(spdktest.Options{ConfigFile: filepath.Join(saved, "current.json")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = again.Close() })
	list := run(t, "", "call", "--socket", again.Socket(), "bdev_get_bdevs").stdout
	assert.Contains(t, list, `"n1"`)
	assert.Contains(t, list, `"n2"`)
	change(t, config, target.Socket(), again.Socket())
	d = start(t, nil, "serve", "--config", config)
	at[1] = d.url
	assert.Contains(t, must("call", "--user", "admin", "spdkgate_config_save"), `"missing": []`)
}

func TestFetchRefusesInvalidArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"x", "--socket", "/s"}, {"x", "--url", "https://h", "--user", "u", "--keep", "0"}, {"x", "--dir", "y"}, {"x", "--instance", "y"}, {"/var/lib/spdk-proxy/target"}, {"/var/lib/spdk-proxy@a/target/"}} {
		o := run(t, "", append([]string{"saved", "fetch"}, args...)...)
		assert.Equal(t, exitUsage, o.code, "%v: %s", args, o.stderr)
	}
}

// Responses from another host are untrusted: file names outside the directory and contents that do
// not match their checksums are rejected.
func TestFetchVerifiesTheResponse(t *testing.T) {
	text := `{"subsystems":[]}`
	const sum = "ff"
	var name string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1<<16)
		n, _ := r.Body.Read(body)
		result := fmt.Sprintf(`[{"name":%q,"saved_at":"2026-01-31T12:00:00.000Z","release":"","calls":0,"damaged":false,"sha256":%q}]`, name, sum)
		if strings.Contains(string(body[:n]), "get_saved") {
			result = fmt.Sprintf(`{"name":%q,"saved_at":"2026-01-31T12:00:00.000Z","text":%q,"sha256":%q}`, name, text, sum)
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, result)
	}))
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "copies")
	for _, name = range []string{"../outside.json", "/etc/passwd", "current.json", "notes.json", ""} {
		o := run(t, "", "saved", "fetch", dir, "--url", server.URL, "--user", "u", "--password-file", writeFileOf(t, "p"))
		assert.NotZero(t, o.code, name)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
	_, err = os.Stat(filepath.Join(filepath.Dir(dir), "outside.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func writeFileOf(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
