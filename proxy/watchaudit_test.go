package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// A watched is an event stream that a test reads.
type watched struct {
	t     *testing.T
	lines *bufio.Reader
	stop  func()
}

// An event is a server-sent event.
type event struct{ name, id, data string }

// watch opens an event stream.
func (b *browser) watch(path string, header ...string) (*http.Response, *watched) {
	ctx, cancel := context.WithTimeout(b.t.Context(), long)
	b.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", b.base+path, nil)
	require.NoError(b.t, err)
	r.Header.Set("Accept", eventStreamType)
	if b.cookie != "" {
		r.Header.Set("Cookie", sessionCookie+"="+b.cookie)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(r)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, &watched{b.t, bufio.NewReader(resp.Body), cancel}
}

// next returns the next event, or false if the stream has ended.
func (w *watched) next() (e event, ok bool) {
	w.t.Helper()
	for {
		line, err := w.lines.ReadString('\n')
		if err == io.EOF {
			return e, false
		}
		require.NoError(w.t, err)
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		}
		if line == "\n" && e.name != "" {
			return e, true
		}
	}
}

// nextCall returns the entry of the next call.
func (w *watched) nextCall() (entry map[string]any) {
	w.t.Helper()
	e, ok := w.next()
	require.True(w.t, ok, "the stream has ended")
	require.Equal(w.t, "call", e.name)
	require.NoError(w.t, json.Unmarshal([]byte(e.data), &entry))
	return entry
}

func TestAdministratorsWatchTheAuditLog(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(version)
	const key = `{"id":1,"method":"accel_crypto_key_create","params":{"name":"k","cipher":"AES_XTS","key":"00112233445566778899aabbccddeeff","key2":"ffeeddccbbaa99887766554433221100"}}`
	b.post(key)
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	resp, w := u.watch("/console/audit")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	for _, method := range []string{"spdk_get_version", "accel_crypto_key_create", "console.sign_in", "console.audit"} {
		entry := w.nextCall()
		assert.Equal(t, method, entry["method"])
		if method == "accel_crypto_key_create" {
			assert.NotContains(t, entry["params"], "00112233445566778899aabbccddeeff")
			assert.Equal(t, b.log.Lines(t, "call")[1]["params"], entry["params"], "as in the log")
		}
	}
	b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc))
	live := w.nextCall()
	assert.Equal(t, []any{"viewer", "deny", "bdev_malloc_create"}, []any{live["user"], live["decision"], live["method"]})
	b.do("POST", "/", "viewer", "wrong", strings.NewReader(version))
	e, _ := w.next()
	assert.Contains(t, e.data, `"decision":"unauthenticated"`)

	// A client that reconnects receives exactly the entries that it has missed.
	w.stop()
	b.post(version)
	_, again := u.watch("/console/audit", "Last-Event-ID", e.id)
	assert.Equal(t, "spdk_get_version", again.nextCall()["method"])
	assert.Equal(t, "console.audit", again.nextCall()["method"])
	_, other := u.watch("/console/audit", "Last-Event-ID", "another-7")
	assert.Equal(t, "spdk_get_version", other.nextCall()["method"], "of another process: from the beginning")

	for name, header := range map[string]string{"password": basicHeader("admin", adminPassword), "viewer": basicHeader("viewer", viewerPassword)} {
		resp, _ := b.browser().watch("/console/audit", "Authorization", header)
		assert.Equal(t, map[string]int{"password": http.StatusOK, "viewer": http.StatusForbidden}[name], resp.StatusCode)
	}
	resp, _ = b.browser().watch("/console/audit")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.Equal(t, http.StatusOK, u.do("HEAD", "/console/audit", "").StatusCode, "which ends immediately")
	resp, _ = u.watch("/console/audit", "Sec-Fetch-Site", "same-site")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}

// A tenant's user is not an administrator, whatever the user's roles are.
func TestTenantsCannotWatchTheAuditLog(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs-team"}}}
		c.Users[0].Tenant = "team"
	})
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	resp, _ := u.watch("/console/audit")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}

// A stream ends when its session ends, when its user loses the permission for it, and when the
// server stops.
func TestStreamsEndWithTheirSession(t *testing.T) {
	for name, end := range map[string]func(b *bench, u *browser, clock *testClock){
		"sign-out":   func(_ *bench, u *browser, _ *testClock) { u.do("DELETE", "/console/session", "") },
		"time":       func(_ *bench, _ *browser, c *testClock) { c.pass(time.Hour) },
		"the server": func(b *bench, _ *browser, _ *testClock) { close(b.proxy.stopping) },
		"roles": func(b *bench, _ *browser, _ *testClock) {
			c := *b.config
			c.Users = []config.User{c.Users[0], c.Users[1]}
			c.Users[0].Roles = []string{"viewer"}
			require.NoError(b.t, b.proxy.Reload(&c))
		},
		"password": func(b *bench, _ *browser, _ *testClock) {
			c := *b.config
			c.Users = []config.User{c.Users[0], c.Users[1]}
			c.Users[0].PasswordHash = hashes()[viewerPassword]
			require.NoError(b.t, b.proxy.Reload(&c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "v26.05")
			b.proxy.web.StreamCheck = time.Millisecond
			clock := withClock(b.proxy)
			u := b.browser()
			u.signIn(passwordOf("admin", adminPassword))
			resp, w := u.watch("/console/audit")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			w.nextCall()
			end(b, u, clock)
			for {
				e, ok := w.next()
				if !ok {
					break
				}
				assert.NotContains(t, e.data, createMalloc)
			}
			assert.Zero(t, b.proxy.web.Streams())
		})
	}
}

func TestStreamsDoNotKeepSessionsAlive(t *testing.T) {
	b := newBench(t, "v26.05")
	clock := withClock(b.proxy)
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	clock.pass(20 * time.Minute)
	resp, w := u.watch("/console/audit")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	w.nextCall()
	clock.pass(11 * time.Minute)
	assert.Equal(t, http.StatusUnauthorized, u.call())
}

func TestNumberOfStreamsIsLimited(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Users[1].Roles = []string{"admin"} })
	u, second := b.browser(), b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	second.signIn(passwordOf("viewer", viewerPassword))
	for range web.MaxStreamsPerUser {
		resp, _ := u.watch("/console/audit")
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, _ := u.watch("/console/audit")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "5", resp.Header.Get("Retry-After"))
	resp, _ = second.watch("/console/audit")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "other users can still open streams")
}
