package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// The documented commands replace a password without a restart. Clients keep their connections and
// sessions, both passwords are valid in the meantime, and the log shows which password a client
// used.
func TestDocumentedPasswordReplacementNeedsNoRestart(t *testing.T) {
	const next = "another password" // the password that the runbook's hash-password hashes
	steps := documented(t, "docs/authentication.md", "Replace a password", "console")
	require.Len(t, steps, 3)
	g := newGatehouse(t)
	clients, connections := map[string]*http.Client{adminPassword: g.client(nil), next: g.client(nil)}, map[string]int{}
	secrets := os.Getenv("CREDENTIALS_DIRECTORY")
	idOf := func(path string, line int) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		h, err := authn.ParseHash(strings.Split(string(text), "\n")[line])
		require.NoError(t, err)
		return h.ID()
	}
	status := func(password string) (code int, credential any) {
		trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			if !c.Reused {
				connections[password]++
			}
		}})
		r, err := http.NewRequestWithContext(trace, "POST", "https://"+g.addr, strings.NewReader(version))
		require.NoError(t, err)
		r.SetBasicAuth("admin", password)
		resp, err := clients[password].Do(r)
		require.NoError(t, err)
		var answer any
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
		require.NoError(t, resp.Body.Close())
		g.unmerged()
		return resp.StatusCode, g.lastCall()["credential"]
	}
	before := idOf(filepath.Join(secrets, "secrets_admin.hash"), 0)
	session := &browser{t: t, client: g.client(nil), base: "https://" + g.addr}
	session.signIn(passwordOf("admin", adminPassword))
	require.Equal(t, http.StatusOK, session.call())

	check := func(password string, wantCode int, wantCredential any) {
		t.Helper()
		code, credential := status(password)
		assert.Equal(t, []any{wantCode, wantCredential}, []any{code, credential})
	}
	check(adminPassword, 200, before)
	g.runbook(steps[0])
	check(adminPassword, 200, before)
	g.runbook(steps[1])
	after := idOf(filepath.Join(g.dir, "admin.hash"), 1)
	require.NotEqual(t, before, after)
	for range 2 {
		check(adminPassword, 200, before)
		check(next, 200, after)
	}
	assert.Equal(t, http.StatusOK, session.call())
	assert.Contains(t, g.lastCall()["credential"], before, "the log also shows with which password a session began")
	g.runbook(steps[2])
	check(next, 200, after)
	check(adminPassword, 401, nil)
	assert.Equal(t, http.StatusUnauthorized, session.call())
	assert.Equal(t, map[string]int{adminPassword: 1, next: 1}, connections, "clients keep their connections")
	assert.NotContains(t, g.log.String(), "$2a$04$", "no hash is in the log")
}
