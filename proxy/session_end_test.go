package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/console"
)

func TestSessionsTimeOut(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Console.Grafana = "https://grafana.example/d/spdk"
		c.Console.Idle, c.Console.Lifetime = config.Duration(10*time.Minute), config.Duration(time.Hour)
	})
	clock := withClock(b.proxy)
	u := b.browser()
	began := u.signIn(passwordOf("admin", adminPassword))
	assert.Equal(t, 600, began.IdleSeconds)
	assert.Equal(t, "https://grafana.example/d/spdk", began.Grafana)
	clock.pass(9 * time.Minute)
	require.Equal(t, http.StatusOK, u.call())
	clock.pass(9 * time.Minute)
	require.Equal(t, http.StatusOK, u.do("POST", "/", version, backgroundHeader, "1").StatusCode)
	require.Equal(t, http.StatusForbidden, u.do("POST", "/", version, csrfHeader, "").StatusCode)
	clock.pass(time.Minute)
	assert.Equal(t, http.StatusUnauthorized, u.call(), "neither the page's background requests nor forged requests count as a use of the session")

	u.signIn(passwordOf("admin", adminPassword))
	for range 6 {
		require.Equal(t, http.StatusOK, u.call())
		clock.pass(9 * time.Minute)
	}
	require.Equal(t, http.StatusOK, u.call())
	clock.pass(6 * time.Minute)
	resp := u.do("GET", "/console/session", "")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "the session ends after an hour even if it is used")
	assert.Contains(t, resp.body, `"ways"`)
	assert.Contains(t, resp.Header.Get("Set-Cookie"), "Max-Age=0")

	// A reload also changes the timeouts of existing sessions.
	u.signIn(passwordOf("admin", adminPassword))
	clock.pass(2 * time.Minute)
	shorter := *b.config
	shorter.Console.Idle = config.Duration(time.Minute)
	require.NoError(t, b.proxy.Reload(&shorter))
	assert.Equal(t, http.StatusUnauthorized, u.call())
}

// A reload ends only the sessions of users with changed credentials. Changes to roles and tenants
// take effect immediately.
func TestReloadEndsSessionsOfChangedCredentials(t *testing.T) {
	b := newSafeBench(t, "v26.05")
	admin, viewer := b.browser(), b.browser()
	admin.signIn(passwordOf("admin", adminPassword))
	viewer.signIn(passwordOf("viewer", viewerPassword))

	changed := *b.config
	changed.Users = []config.User{changed.Users[0], {Name: "viewer", PasswordHash: hashes()[viewerPassword], Roles: []string{"admin"}, Tenant: "team"}}
	changed.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs-team"}}}
	require.NoError(t, b.proxy.Reload(&changed))
	require.Equal(t, http.StatusOK, admin.call())
	require.Equal(t, http.StatusOK, viewer.call())
	assert.Equal(t, "team", viewer.lastTenant(b))
	var now console.SessionAnswer
	require.NoError(t, json.Unmarshal([]byte(viewer.do("GET", "/console/session", "").body), &now))
	assert.Equal(t, []string{"admin"}, now.Roles)
	assert.False(t, now.Administrator, "a tenant's user is not an administrator")

	again := changed
	again.Users = []config.User{changed.Users[0], {Name: "viewer", PasswordHash: hashes()[adminPassword], Roles: []string{"admin"}}}
	require.NoError(t, b.proxy.Reload(&again))
	assert.Equal(t, http.StatusOK, admin.call())
	assert.Equal(t, http.StatusUnauthorized, viewer.call(), "the password changed")
	require.NoError(t, b.proxy.Reload(&changed))
	assert.Equal(t, http.StatusUnauthorized, viewer.call(), "the session does not return when the password does")

	viewer.signIn(passwordOf("viewer", viewerPassword))
	removed := changed
	removed.Users = changed.Users[:1]
	require.NoError(t, b.proxy.Reload(&removed))
	assert.Equal(t, http.StatusUnauthorized, viewer.call(), "the user was removed")

	off := *b.config
	off.Console.Enabled = false
	require.NoError(t, b.proxy.Reload(&off))
	assert.Equal(t, http.StatusUnauthorized, admin.call())
	require.NoError(t, b.proxy.Reload(b.config))
	assert.Equal(t, http.StatusUnauthorized, admin.call(), "switching the console off ends all sessions")
}

// Every kind of credential in the documented configuration can begin a session, which ends when the
// credential is revoked.
func TestSessionEndsWhenItsCredentialIsRevoked(t *testing.T) {
	g := newGatehouse(t)
	at := func(client *http.Client) *browser { return &browser{t: t, client: client, base: "https://" + g.addr} }
	jwt := g.csiToken(csiAudience, csiSubject, map[string]any{"kubernetes.io": map[string]any{"namespace": "spdkcsi"}})
	pair := g.authority.Client(named("dashboard.example"))

	backup, csi, dashboard := at(g.client(nil)), at(g.client(nil)), at(g.client(&pair))
	resp := dashboard.do("GET", "/console/session", "")
	assert.Contains(t, resp.body, `"certificate":true`)
	assert.NotContains(t, backup.do("GET", "/console/session", "").body, `"certificate":true`, "this connection has no certificate")

	assert.Equal(t, "token", backup.signIn(fmt.Sprintf(`{"token":%q}`, g.token)).Method)
	assert.Equal(t, []any{"backup", "token"}, []any{g.lastCall()["user"], g.lastCall()["auth"]})
	began := csi.signIn(fmt.Sprintf(`{"token":%q}`, jwt))
	assert.Equal(t, "token", began.Method)
	assert.Equal(t, []any{"csi", "jwt", csiSubject}, []any{g.lastCall()["user"], g.lastCall()["auth"], g.lastCall()["credential"]})
	expires, err := time.Parse(time.RFC3339, began.Expires)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(time.Hour), expires, time.Minute, "the session ends with the token")
	assert.Equal(t, "certificate", dashboard.signIn(`{}`).Method)
	users := []*browser{backup, csi, dashboard}
	for _, u := range users {
		assert.Equal(t, http.StatusOK, u.call())
	}

	// A session that began with a certificate requires this certificate on every connection.
	other := g.authority.Client(named("dashboard.example"))
	for _, elsewhere := range []*http.Client{g.client(nil), g.client(&other)} {
		stolen := *dashboard
		stolen.client = elsewhere
		resp := stolen.do("POST", "/", version)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		assert.Contains(t, resp.body, "the session belongs to a client certificate that this connection does not have")
	}
	assert.Equal(t, http.StatusOK, dashboard.call(), "the session continues for its owner")

	for i, change := range []func(){
		func() { g.file("backup.tokens", nil); require.NoError(t, g.proxy.Reload(g.load())) },
		func() {
			require.NoError(t, g.proxy.Reload(g.load(csiSubject, "system:serviceaccount:spdkcsi:another")))
		},
		func() {
			g.file("client-ca.crt", authntest.NewAuthority(t, "clients").PEM())
			require.NoError(t, g.proxy.Reload(g.load()))
		},
	} {
		require.Equal(t, http.StatusOK, users[i].call())
		change()
		assert.Equal(t, http.StatusUnauthorized, users[i].call(), "credential %d", i)
		for _, u := range users[i+1:] {
			assert.Equal(t, http.StatusOK, u.call())
		}
	}
}

func TestSessionEndsWhenItsTokenExpires(t *testing.T) {
	token, until := authn.NewToken(), time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "backup", TokenHashes: []string{authn.HashToken(token, until).String()}, Roles: []string{"viewer"}})
	})
	clock := withClock(b.proxy)
	u := b.browser()
	assert.Equal(t, until.Format(time.RFC3339), u.signIn(fmt.Sprintf(`{"token":%q}`, token)).Expires)
	for range 3 {
		require.Equal(t, http.StatusOK, u.call())
		clock.pass(20*time.Minute - time.Second)
	}
	require.Equal(t, http.StatusOK, u.call())
	clock.pass(time.Minute)
	assert.Equal(t, http.StatusUnauthorized, u.call())
}

// If a user represents a group of people, signing out does not affect the other people in the
// group.
func TestSignOutDoesNotAffectOthersInAGroup(t *testing.T) {
	w := newOIDC(t, map[string]any{"groups": []string{"storage"}})
	changed := *w.config
	changed.Users = append(changed.Users[:2:2], config.User{Name: "storage", JWT: &config.JWT{Issuer: "sso", Claims: map[string]string{"groups": "storage"}}, Roles: []string{"viewer"}})
	require.NoError(t, w.proxy.Reload(&changed))
	signIn := func(subject string) *browser {
		w.issuer.Register("console", clientSecret, subject, map[string]any{"groups": []string{"storage"}})
		u := w.browser()
		require.Equal(t, http.StatusOK, w.end(u, w.begin(u)).StatusCode)
		u.csrf = decoded[console.SessionAnswer](t, u.do("GET", "/console/session", "")).CSRF
		return u
	}
	ann, elsewhere, bob := signIn("ann@example"), signIn("ann@example"), signIn("bob@example")
	require.Equal(t, http.StatusOK, ann.call())
	assert.Equal(t, "storage", w.lastCall()["user"])
	assert.Regexp(t, `^[0-9a-f]{8}, ann@example$`, w.lastCall()["credential"], "the log shows which of them it was")
	assert.JSONEq(t, `{"ended":2}`, ann.do("DELETE", "/console/session?everywhere=1", "").body)
	assert.Equal(t, http.StatusUnauthorized, elsewhere.call())
	assert.Equal(t, http.StatusOK, bob.call())
}

// In a session of a tenant's user, only the tenant's objects and methods are visible.
func TestTenantSessionsSeeOnlyTheTenantsObjects(t *testing.T) {
	b := newSafeBench(t, "v26.05", func(c *config.Config) {
		withTeam(c)
		c.Tenants = map[string]config.Tenant{"team": {Bdevs: []string{"team-*"}}}
	})
	for _, name := range []string{"team-1", "other-1"} {
		require.Equal(t, http.StatusOK, b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_create","params":{"name":%q,"num_blocks":2048,"block_size":512}}`, name)).StatusCode)
	}
	u := b.browser()
	u.signIn(passwordOf("team", viewerPassword))
	seen := u.do("POST", "/", `{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Equal(t, http.StatusOK, seen.StatusCode)
	assert.Contains(t, seen.body, "team-1")
	assert.NotContains(t, seen.body, "other-1")
	document := u.do("GET", "/openrpc.json", "")
	assert.Contains(t, document.body, `"bdev_get_bdevs"`)
	assert.NotContains(t, document.body, `"nvmf_create_transport"`)
	assert.Equal(t, "team", b.lastCall()["user"])
}
