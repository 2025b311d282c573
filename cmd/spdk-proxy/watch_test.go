package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// watch prints events as they happen, and exits after --count events.
func TestWatchPrintsEvents(t *testing.T) {
	sim := target(t)
	path := writeConfig(t, sim.Socket(), "")
	d := start(t, nil, "serve", "--config", path)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	at := []string{"--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", password}
	sim.Crash()
	o := run(t, "", append([]string{"watch", "--count", "1"}, at...)...)
	require.Zero(t, o.code, o.stderr)
	assert.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  target_down       the target does not respond: `, o.stdout)
	o = run(t, "", append([]string{"watch", "--count", "1", "-o", "json"}, at...)...)
	require.Zero(t, o.code, o.stderr)
	var e map[string]any
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &e))
	assert.Equal(t, "target_down", e["type"])

	assert.Equal(t, exitUsage, run(t, "", append([]string{"watch", "-o", "xml"}, at...)...).code)
	assert.Equal(t, exitUsage, run(t, "", "watch", "--socket", sim.Socket()).code)
	require.NoError(t, os.WriteFile(password, []byte("wrong\n"), 0o600))
	assert.Equal(t, exitDenied, run(t, "", append([]string{"watch"}, at...)...).code)
}

// After a lost connection, watch reconnects and continues with the next event. Object names cannot
// control the terminal.
func TestWatchContinuesAfterALostConnection(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/events", r.URL.Path)
		seen = append(seen, r.Header.Get("Last-Event-ID"))
		_, _ = io.WriteString(w, ": stream\n\nid: 1"+strings.Repeat("0", len(seen))+"\nevent: x\ndata: {\"time\":\"2026-11-23T10:00:00Z\",\"type\":\"x\",\"text\":\"a\\u001b[31mb\"}\n\n")
	}))
	defer server.Close()
	caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: server.URL + "/some/path", Username: "u", Password: "p"})
	require.NoError(t, err)
	defer func() { _ = caller.Close() }()
	var out, log bytes.Buffer
	p := &eventPrinter{out: &out, left: 2}
	require.NoError(t, p.follow(context.Background(), caller, &log))
	assert.Equal(t, []string{"", "10"}, seen)
	assert.Equal(t, 2, strings.Count(out.String(), `a\u001b[31mb`+"\n"))
	assert.Contains(t, log.String(), "connecting again")
}
