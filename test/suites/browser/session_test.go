package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserSignsInWithAPassword(t *testing.T) {
	p := newPage(t)
	p.open("")
	p.fill("User", "admin")
	p.fill("Password", "a wrong one")
	p.press("Sign in")
	p.until(`!!document.querySelector("[role=alert]")`)
	assert.Empty(t, eval[string](p, `document.querySelector("input[type=password]").value`), "a refused password must not stay in the form")
	p.fill("Password", password)
	p.press("Sign in")
	p.until(`document.title.startsWith("Overview")`)

	p.do(chromedp.Navigate(p.testbed.url + "/console/#/volumes"))
	p.do(chromedp.Reload())
	p.until(`document.title.startsWith("Volumes")`)
	p.press("admin")
	p.press("Sign out")
	p.has("You are signed out.")
	p.do(chromedp.Reload())
	p.until(`!!document.querySelector("form input[type=password]")`)
}

// A stolen part of a session is useless. Scripts cannot read the cookie, and the proxy refuses both
// a CSRF token without the cookie and a cookie without the token.
func TestStolenSessionPartsAreUseless(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	assert.NotContains(t, eval[string](p, `document.cookie`), "=", "scripts must not see the cookie")
	stored := eval[string](p, `JSON.stringify({...localStorage, ...sessionStorage})`)
	assert.NotContains(t, stored, "csrf")
	csrf := eval[string](p, `fetch("/console/session").then((r) => r.json()).then((s) => s.csrf)`)
	require.NotEmpty(t, csrf)

	const call = `{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`
	request, err := http.NewRequest(http.MethodPost, p.testbed.url+"/", strings.NewReader(call))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-CSRF-Token", csrf)
	response, err := insecureClient().Do(request)
	require.NoError(t, err)
	_ = response.Body.Close()
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode, "the CSRF token without the cookie")

	const post = `fetch("/", {method: "POST", headers: {"Content-Type": "application/json" %s}, body: '` + call + `'}).then((r) => r.status)`
	assert.Equal(t, http.StatusOK, eval[int](p, fmt.Sprintf(post, `, "X-CSRF-Token": "`+csrf+`"`)))
	assert.Equal(t, http.StatusForbidden, eval[int](p, fmt.Sprintf(post, ``)), "the cookie without the CSRF token")
	assert.Equal(t, http.StatusForbidden, eval[int](p, fmt.Sprintf(post, `, "X-CSRF-Token": "`+csrf[1:]+`x"`)), "the cookie with another CSRF token")

	eval[chromedp.Void](p, `fetch("/console/session", {method: "DELETE", headers: {"X-CSRF-Token": "`+csrf+`"}}).then(() => null)`)
	assert.Equal(t, http.StatusUnauthorized, eval[int](p, fmt.Sprintf(post, `, "X-CSRF-Token": "`+csrf+`"`)), "after the session has ended")
}

// A page on another site cannot use a visitor's session for calls, either with a form or with a
// script.
func TestCrossSiteRequestForgeryIsPrevented(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	body := `{"jsonrpc":"2.0","id":1,"method":"bdev_lvol_create","params":{"lvol_name":"forged","size_in_mib":4,"lvs_name":"scratch"}}`
	evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>evil</title><form method="post" enctype="text/plain" action="%s/" target="frame"><input name='%s' value=''></form><iframe name="frame"></iframe>`, p.testbed.url, strings.TrimSuffix(body, "}")+`,"x":"`)
	}))
	defer evil.Close()
	site := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	p.others = append(p.others, site)
	p.do(chromedp.Navigate(site))
	p.until(`document.title === "evil"`)
	answers := eval[[]string](p, forgery(p.testbed.url, body))
	assert.Equal(t, []string{"opaque 0", "blocked", "blocked", "blocked", "blocked"}, answers)
	lvols, err := p.testbed.target.call("bdev_lvol_get_lvols", object{"lvs_name": "scratch"})
	require.NoError(t, err)
	assert.NotContains(t, string(lvols), "forged")

	p.do(chromedp.Navigate(p.testbed.url + "/console/"))
	p.until(`document.title.startsWith("Overview")`) // the session still exists
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = nil // values of the other site's page
}

// forgery is a script on another site that attempts to make calls.
func forgery(url, body string) string {
	return strings.NewReplacer("URL", url, "BODY", "'"+body+"'").Replace(`(async () => {
	const tries = [
		{method: "POST", mode: "no-cors", credentials: "include", body: BODY},
		{method: "POST", mode: "cors", credentials: "include", body: BODY},
		{method: "POST", mode: "cors", credentials: "include", body: BODY, headers: {"Content-Type": "application/json", "X-CSRF-Token": "guess"}},
		{method: "DELETE", mode: "cors", credentials: "include", path: "/console/session"},
		{method: "GET", mode: "cors", credentials: "include", path: "/console/session"},
	];
	const answers = [];
	for (const {path = "/", ...t} of tries) answers.push(await fetch("URL" + path, t).then((r) => r.type + " " + r.status, () => "blocked"));
	const loaded = new Promise((done) => { document.querySelector("iframe").onload = done; });
	document.querySelector("form").submit();
	await loaded;
	return answers;
})()`)
}
