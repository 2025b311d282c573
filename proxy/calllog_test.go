package proxy

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// Each call is logged only to the file, before the client receives the response. The file contains
// no secrets.
func TestCallsAreLoggedToAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.log")
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Log.Calls.To, c.Log.Calls.Path = config.CallsToFile, path
	})
	lines := func() (all []map[string]any) {
		file, err := os.Open(path)
		require.NoError(t, err)
		defer func() { _ = file.Close() }()
		for s := bufio.NewScanner(file); s.Scan(); {
			var line map[string]any
			require.NoError(t, json.Unmarshal(s.Bytes(), &line), s.Text())
			all = append(all, line)
		}
		return all
	}
	const secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	for i, c := range []struct {
		user, password, body string
		status               int
		decision             string
	}{
		{"admin", adminPassword, createMalloc, http.StatusOK, "allow"},
		{"viewer", viewerPassword, createMalloc, http.StatusForbidden, "deny"},
		{"viewer", "wrong", createMalloc, http.StatusUnauthorized, "unauthenticated"},
		{"admin", adminPassword, `{"id":1,"method":"spdkgate_key_add","params":{"name":"k","secret":"` + secret + `"}}`, 0, "allow"},
		{"admin", adminPassword, `{"id":1,"method":"no_such","params":{"password":"hunter2"}}`, 0, ""},
	} {
		g := b.do("POST", "/", c.user, c.password, strings.NewReader(c.body))
		if c.status != 0 {
			assert.Equal(t, c.status, g.StatusCode)
		}
		all := lines()
		require.Len(t, all, i+1, "the line of this call is written")
		last := all[i]
		assert.Equal(t, "call", last["msg"])
		assert.Equal(t, g.Header.Get("X-Request-Id"), last["request_id"])
		if c.decision != "" {
			assert.Equal(t, c.decision, last["decision"])
		}
	}
	assert.Empty(t, b.log.Lines(t, "call"), "the ordinary log contains no lines about calls")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, hidden := range []string{secret, "hunter2", adminPassword, viewerPassword} {
		assert.NotContains(t, string(text), hidden)
	}
	assert.Contains(t, b.scrape(), "\nspdk_proxy_audit_failures_total 0\n")

	// If the file cannot be written, calls are still served, and their entries go to the ordinary
	// log.
	require.NoError(t, b.proxy.callLog.Close())
	written := len(lines())
	require.Equal(t, http.StatusOK, b.do("POST", "/", "admin", adminPassword, strings.NewReader(version)).StatusCode)
	assert.Equal(t, "spdk_get_version", b.lastCall()["method"])
	assert.Len(t, lines(), written)
	assert.Contains(t, b.scrape(), "\nspdk_proxy_audit_failures_total 1\n")
}

func TestServerDoesNotStartIfTheCallLogCannotBeOpened(t *testing.T) {
	b := newBench(t, "v26.05")
	for path, says := range map[string]string{filepath.Join(t.TempDir(), "none", "calls.log"): "no such file", t.TempDir(): "is a directory"} {
		c := *b.config
		c.Log.Calls.To, c.Log.Calls.Path = config.CallsToFile, path
		_, err := NewServer(&c, Options{})
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, b.proxy.Reload(&c), "log has changed: restart the proxy")
	}
}
