package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
)

const grafanaLinks = `[...document.querySelectorAll("main a")].filter((a) => a.innerText === "Open in Grafana").map((a) => a.href + " " + a.rel)`

// The overview and the page of a volume link to the configured dashboard. A tenant's user does not
// see these links.
func TestGrafanaLinksAreHiddenFromTenants(t *testing.T) {
	p := newPage(t)
	p.signIn("viewer")
	p.until(grafanaLinks + `.length === 1`)
	assert.Equal(t, []string{"https://grafana.example/d/spdk?var-server=storage-1 noopener noreferrer"}, eval[[]string](p, grafanaLinks))
	p.show("volumes")
	p.until(sized)
	p.fill("Search name, UUID or export", "vol-00012")
	p.has("1 of ")
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(grafanaLinks + `.length === 1`)
	uuid := eval[string](p, `[...document.querySelectorAll(".panel dt")].find((d) => d.innerText === "UUID").nextElementSibling.innerText.trim()`)
	assert.Equal(t, []string{"https://grafana.example/d/spdk?var-server=storage-1&var-volume=ssd%2Fvol-00012&var-uuid=" + uuid + " noopener noreferrer"}, eval[[]string](p, grafanaLinks))

	tenant := newPage(t)
	tenant.signIn("team")
	tenant.has("Quota of tenant team")
	assert.Empty(t, eval[[]string](tenant, grafanaLinks))
}
