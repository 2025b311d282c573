package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/config"
)

func TestConsoleIsServed(t *testing.T) {
	b := newBench(t, "v26.05")
	b.http.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u := b.browser()
	moved := u.do("GET", "/console", "")
	assert.Equal(t, "/console/", moved.Header.Get("Location"))
	for _, path := range []string{"/console/", "/console", "/console/session", "/console/none.js"} {
		h := u.do("GET", path, "").Header
		assert.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'",
			h.Get("Content-Security-Policy"), path)
		assert.Equal(t, []string{"nosniff", "no-referrer", "same-origin", "same-origin", "DENY"}, []string{
			h.Get("X-Content-Type-Options"), h.Get("Referrer-Policy"), h.Get("Cross-Origin-Opener-Policy"), h.Get("Cross-Origin-Resource-Policy"), h.Get("X-Frame-Options"),
		}, path)
		assert.Contains(t, h.Get("Permissions-Policy"), "camera=()", path)
	}
	assert.Equal(t, http.StatusOK, u.do("GET", "/console/", "").StatusCode)
	assert.Equal(t, http.StatusMethodNotAllowed, u.do("PUT", "/console/session", "").StatusCode)
	assert.Equal(t, http.StatusOK, b.do("POST", "/consoles", "admin", adminPassword, strings.NewReader(version)).StatusCode, "a path of rpc_http_proxy.py's clients")
}

// With console: false, the console's paths do not exist, and its cookies are ignored.
func TestDisabledConsoleIsNotServed(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	off := newBench(t, "v26.05", func(c *config.Config) { c.Console.Enabled = false })
	u.base = off.http.URL
	for _, method := range []string{"GET", "POST", "DELETE", "HEAD", "PUT"} {
		for _, path := range []string{"/console", "/console/", "/console/session", "/console/index.html"} {
			assert.Equal(t, http.StatusNotFound, u.do(method, path, passwordOf("admin", adminPassword)).StatusCode, "%s %s", method, path)
		}
	}
	resp := u.do("POST", "/", version)
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Values("Www-Authenticate"))
	assert.Equal(t, "", off.lastCall()["auth"])
}
