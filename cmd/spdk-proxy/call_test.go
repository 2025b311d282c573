package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the certificate does not contain the URL's host name, the error does not suggest another --ca,
// which would not help.
func TestCallFailsIfTheCertificateLacksTheHostName(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is for example.com, 127.0.0.1 and ::1
	defer server.Close()
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))

	o := run(t, "", "call", "--url", url, "--user", "admin", "--ca", ca, "spdk_get_version")
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, "the names and addresses in the certificate are example.com")
	assert.Contains(t, o.stderr, "127.0.0.1, ::1: use one of them in --url or $SPDK_PROXY_URL, or give the proxy a certificate for localhost (tls.cert_file)")
	assert.NotContains(t, o.stderr, "--ca")

	o = run(t, "", "call", "--url", server.URL, "--user", "admin", "spdk_get_version")
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, "set --ca or $SPDK_PROXY_CA")
}

// A proxy that refuses a call because of its limits is not reported as unreachable.
func TestCallReportsTooManyFailedLogins(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "limits: {auth_failures_per_minute: 1}\n")
	d := start(t, nil, "serve", "--config", path)
	wrong := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	var o outcome
	for range 20 { // more than the ten attempts that are allowed at once
		o = run(t, "", "call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", wrong, "spdk_get_version")
		if o.code != exitDenied {
			break
		}
	}
	assert.Equal(t, exitLimited, o.code)
	assert.Regexp(t, `^spdk-proxy: spdk_get_version: limit reached: too many failed logins: wait \S+, then send the right credentials`, o.stderr)
	assert.NotContains(t, o.stderr, "unreachable")
}

// Commands that make few calls do not open a stream: opening one costs more than the calls.
func TestCommandsWithFewCallsOpenNoStream(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		w.Header().Set("Spdkgate-Stream", "/stream")
		var c struct{ ID json.Number }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		_, _ = io.WriteString(w, `{"id":`+c.ID.String()+`,"result":{"version":"SPDK v26.05"}}`)
	}))
	defer server.Close()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("word\n"), 0o600))
	where := []string{"--url", server.URL, "--user", "admin", "--password-file", password}
	o := run(t, "", append([]string{"call", "spdk_get_version"}, where...)...)
	require.Zero(t, o.code, o.stderr)
	run(t, "", append([]string{"status"}, where...)...)
	assert.Greater(t, len(paths), 2)
	assert.NotContains(t, paths, "/stream")
}
