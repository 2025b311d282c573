package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplorerMakesACall(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("explorer")
	p.fill("Search methods and parameters", "bdev_get_bdevs")
	p.until(`document.querySelector(".methods a .mono")?.innerText === "bdev_get_bdevs"`)
	eval[chromedp.Void](p, `document.querySelector(".methods a").click()`)
	p.until(described)
	p.fill("name", "ssd/vol-00012")
	p.press("Call")
	p.until(`!!document.querySelector(".answers .tree")`)
	assert.Contains(t, eval[string](p, `document.querySelector(".answers").innerText`), "Logical Volume")
	p.press("Table")
	p.until(`document.querySelector(".answers td")?.innerText.length === 36`)
	for tab, part := range map[string]string{
		"JSON": `"params": {"name": "ssd/vol-00012"}`, "curl": "curl --cacert tls.crt --user 'admin'", "spdk-proxy": `'name:="ssd/vol-00012"'`,
		"rpc.py's client": `client.call("bdev_get_bdevs", {"name": "ssd/vol-00012"})`, "Go": `spdk.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{`,
	} {
		p.press(tab)
		p.until(`[...document.querySelectorAll("pre")].some((e) => e.innerText.includes(` + "`" + part + "`" + `))`)
	}
}

// The schema refuses a value in the page, and nothing is sent.
func TestExplorerRefusesWhatTheSchemaRefuses(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("explorer?method=bdev_lvol_create")
	p.until(described)
	p.fill("lvol_name", strings.Repeat("x", 64))
	p.has("At most 63 characters")
	p.fill("lvol_name", "v")
	p.fill("size_in_mib", "18446744073709551616")
	p.has("At most 17592186044415")
	p.fill("size_in_mib", "-1")
	p.has("At least 0")
	p.fill("size_in_mib", "9007199254740993")
	p.has("At most 17592186044415")
	p.press("Call…")
	p.has("Give exactly one of uuid, lvs_name")
	assert.False(t, eval[bool](p, `!!document.querySelector("dialog[open]")`))
	assert.Contains(t, eval[string](p, `document.querySelector(".method").innerText`), "2 values to correct")
	assert.True(t, eval[bool](p, `document.activeElement.getAttribute("aria-invalid") === "true"`), "the first value to correct has the focus")
}

// The policy refuses a call, and the page shows why.
func TestExplorerShowsARefusal(t *testing.T) {
	p := newPage(t)
	p.signIn("operator")
	p.show("explorer?method=bdev_lvol_create")
	p.until(described)
	p.fill("lvol_name", "refused")
	p.fill("size_in_mib", "4")
	p.fill("lvs_name", "ssd")
	p.press("Call…")
	p.press("Make the call")
	p.until(`document.querySelector(".answers [role=alert]")?.innerText.startsWith("Refused:")`)
	p.fill("lvs_name", "scratch")
	p.fill("lvol_name", "permitted")
	p.press("Call…")
	p.press("Make the call")
	p.until(`!!document.querySelector(".answers .tree")`)
	_, err := p.world.target.call("bdev_lvol_delete", object{"name": "scratch/permitted"})
	require.NoError(t, err)
	lvols, err := p.world.target.call("bdev_lvol_get_lvols", object{"lvs_name": "ssd"})
	require.NoError(t, err)
	assert.NotContains(t, string(lvols), "refused")
}

// A destructive call asks for the object's name first.
func TestDestructiveCallAsksForTheName(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	_, err := p.world.target.call("bdev_lvol_create", object{"lvol_name": "doomed", "size_in_mib": 4, "lvs_name": "scratch"})
	require.NoError(t, err)
	p.show("explorer?method=bdev_lvol_delete")
	p.until(described)
	p.fill("name", "scratch/doomed")
	p.press("Call…")
	p.until(`document.querySelector("dialog button[type=submit]")?.disabled === true`)
	p.fill("To confirm, type scratch/doomed", "scratch/doomed")
	p.press("Make the call")
	p.until(`!!document.querySelector(".answers .tree")`)
}

func TestAuditLineAppearsLive(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("audit")
	p.until(listed)
	p.fill("Search user, method or object", "bdev_lvol_delete_lvstore viewer")
	p.has("No call matches")
	request, err := http.NewRequest(http.MethodPost, p.world.url+"/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"bdev_lvol_delete_lvstore","params":{"lvs_name":"ssd"}}`))
	require.NoError(t, err)
	request.SetBasicAuth("viewer", password)
	response, err := insecureClient().Do(request)
	require.NoError(t, err)
	_ = response.Body.Close()
	assert.Equal(t, http.StatusForbidden, response.StatusCode)
	p.until(`document.querySelectorAll(".body .row[id]").length === 1 && document.querySelector(".body .row").innerText.includes("deny")`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelector(".panel").innerText.includes("ssd")`)
}

func TestAccessExplains(t *testing.T) {
	p := newPage(t)
	p.signIn("operator")
	p.show("access")
	p.until(`document.querySelectorAll("tbody tr").length > 100`)
	p.fill("Search methods", "bdev_lvol_create")
	p.until(`[...document.querySelectorAll("tbody tr")].some((r) => r.innerText.includes("depends on the parameters"))`)
	p.fill("Method", "bdev_lvol_create")
	p.fill("Parameters", `{"lvol_name": "v", "size_in_mib": 4, "lvs_name": "ssd"}`)
	p.press("Explain")
	p.until(`!!document.querySelector(".verdict .alert.bad")`)
	p.fill("Parameters", `{"lvol_name": "v", "size_in_mib": 4, "lvs_name": "scratch"}`)
	p.press("Explain")
	p.until(`!!document.querySelector(".verdict .alert.good")`)
}
