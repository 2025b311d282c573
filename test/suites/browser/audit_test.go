package browser

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// postCall makes a call without using the console, and returns the HTTP status of the response.
func (p *page) postCall(user, method, params string) int {
	p.t.Helper()
	request, err := http.NewRequest(http.MethodPost, p.testbed.url+"/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	require.NoError(p.t, err)
	request.SetBasicAuth(user, password)
	response, err := insecureClient().Do(request)
	require.NoError(p.t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

const (
	auditRows  = `document.querySelectorAll(".body .row[id]").length`
	auditCalls = `[...document.querySelectorAll(".body .row[id] .c-call")].map((c) => c.innerText)`
	// cutNames lists the method names that the audit page truncates.
	cutNames = `[...document.querySelectorAll(".body .row[id]")].flatMap((row) => [...row.querySelectorAll(".c-call .mono")].filter((name) => {
		const text = document.createRange(), at = row.querySelector(".c-call").getBoundingClientRect(), next = row.querySelector(".c-decision").getBoundingClientRect();
		text.selectNodeContents(name);
		return [...text.getClientRects()].some((r) => r.right > Math.min(at.right, next.left) + 1 || r.bottom > row.getBoundingClientRect().bottom + 1 || r.bottom > name.getBoundingClientRect().bottom + 1);
	})).map((name) => name.textContent)`
	// savedFiles is a script that collects the files that the page offers for download.
	savedFiles = `(() => { window.saved = []; const make = URL.createObjectURL; URL.createObjectURL = (b) => { b.text().then((t) => saved.push(t)); return make(b); }; })()`
)

func TestAuditLineAppearsLive(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin")
	p.show("audit")
	p.until(auditRows + " > 0")
	p.fill("Search user, method or object", "bdev_lvol_delete_lvstore viewer live")
	p.has("No call matches")
	require.Equal(t, http.StatusForbidden, p.postCall("viewer", "bdev_lvol_delete_lvstore", `{"lvs_name":"live"}`))
	p.until(auditRows + ` === 1 && document.querySelector(".body .row").innerText.includes("deny")`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelector(".panel").innerText.includes("live")`)

	// with these parameters, the call only reads; releases before v25.01 do not have them
	resets := p.testbed.release(t) >= "v25.01"
	params := map[bool]string{true: `{"reset_mode":"none"}`, false: `{}`}[resets]
	require.Equal(t, http.StatusOK, p.postCall("admin", "bdev_get_iostat", params))
	p.fill("Search user, method or object", "")
	p.until(auditCalls + `.some((c) => c.includes("_get_"))`)
	p.press("Changes")
	p.until(auditCalls + `.includes("bdev_lvol_delete_lvstore") && !` + auditCalls + `.some((c) => c.includes("_get_") || c.startsWith("console."))`)
	if resets {
		require.Equal(t, http.StatusOK, p.postCall("admin", "bdev_get_iostat", `{"reset_mode":"all"}`))
		p.until(auditCalls + `.includes("bdev_get_iostat")`)
	}
}

func TestAuditPageHidesConsoleReads(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin") // the overview reads data every 5 s
	p.show("audit")
	p.until(auditRows + " > 0")
	const reads = auditCalls + `.includes("framework_get_reactors")`
	assert.False(t, eval[bool](p, reads), "the console's own reads are hidden")
	p.press("Console's reads")
	p.until(reads)
	p.press("Console's reads")
	p.until(`!` + reads)
	require.Equal(t, http.StatusOK, p.postCall("admin", "framework_get_reactors", `{}`))
	p.until(reads) // made by another client
}

func TestAuditFiltersAndDownloads(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin")
	require.Equal(t, http.StatusForbidden, p.postCall("viewer", "bdev_lvol_delete_lvstore", `{"lvs_name":"ssd"}`))
	for filter, rows := range map[string]string{
		"q=user:viewer+method:delete_lvstore+object:ssd": "> 0", "q=user:ssd": "=== 0", "q=object:viewer": "=== 0", "q=constructor:ssd": "=== 0",
		"decision=deny&q=method:delete_lvstore": "> 0", "decision=allow&q=method:delete_lvstore": "=== 0",
		"to=2001-01-01T00:00": "=== 0", "from=2001-01-01T00:00&q=method:delete_lvstore": "> 0",
	} {
		p.show("audit?" + filter)
		p.until(auditRows + rows + ` && (` + auditRows + ` > 0 || document.body.innerText.includes("No call matches"))`)
	}

	p.show("audit?q=user:viewer")
	p.until(auditRows + " > 0")
	rows := eval[int](p, auditRows)
	eval[chromedp.Void](p, savedFiles)
	p.press("JSON lines")
	p.press("CSV")
	p.until("saved.length === 2")
	lines, table := eval[string](p, `saved.find((s) => s.startsWith("{"))`), eval[string](p, `saved.find((s) => s.startsWith("time,"))`)
	assert.Equal(t, rows, strings.Count(lines, "\n"))
	assert.Contains(t, lines, `"method":"bdev_lvol_delete_lvstore"`)
	assert.Equal(t, rows+1, strings.Count(table, "\r\n"))
	assert.Contains(t, table, `"viewer"`)

	p.injectModel()
	assert.Contains(t, eval[string](p, `model.csv([{ n: 1, time: "t", user: "=HYPERLINK()", method: 'a"b' }])`), `"t","'=HYPERLINK()",`, "a spreadsheet does not compute what a client chose")
	assert.Contains(t, eval[string](p, `model.csv([{ n: 1, time: "t", code: -22 }])`), `"-22"`, "numbers stay numbers")
}

// injectModel loads those of the console's modules that do not access a page, and makes them
// available to the page's scripts as the variable model.
func (p *page) injectModel() {
	p.t.Helper()
	run := exec.CommandContext(p.t.Context(), "go", "run", ".", "-model")
	run.Dir = "../../../proxy/console/web"
	script, err := run.Output()
	require.NoError(p.t, err)
	eval[chromedp.Void](p, string(script)+"; null")
}

// On a phone, the audit page shows the whole names of methods, below the users.
func TestAuditShowsLongMethodNamesOnPhones(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin")
	p.look(390, 844, false)
	// the longest names; calls are logged even if parameters are missing
	for _, long := range []string{"iscsi_initiator_group_remove_initiators", "nvmf_subsystem_listener_set_ana_state"} {
		p.postCall("admin", long, `{}`)
		p.show("audit?q=method:" + long)
		p.until(auditRows + ` > 0`)
		assert.Equal(t, "admin\n"+long, eval[string](p, auditCalls+`[0]`))
		assert.Empty(t, eval[[]string](p, cutNames), long)
	}
	p.show("audit?reads=shown")
	p.until(auditRows + ` > 1`)
	assert.Empty(t, eval[[]string](p, cutNames))
	assert.True(t, eval[bool](p, `(([a, b]) => !b || a.getBoundingClientRect().bottom <= b.getBoundingClientRect().top + 1)([...document.querySelectorAll(".body .row[id]")])`), "rows do not overlap")
	p.look(1440, 900, false)
	p.show("audit?q=method:iscsi_initiator_group_remove_initiators")
	p.until(auditCalls + `[0] === "iscsi_initiator_group_remove_initiators"`)
}
