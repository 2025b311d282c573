package browser

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A picture shows a page in a particular state, window size and color scheme.
type picture struct {
	name, hash    string
	width, height int64
	dark          bool
	wait          string // expression to wait for
	after         func(*page)
}

// The overview comes last, so that its plots contain some samples by then.
var pictures = []picture{
	{name: "volumes-light", hash: "volumes", width: 1440, height: 900, wait: sized},
	{name: "volumes-dark", hash: "volumes", width: 1440, height: 900, dark: true, wait: sized, after: openVolume},
	{name: "volumes-tree", hash: "volumes?view=tree&q=vol-00080", width: 1440, height: 900, wait: listed},
	{name: "volumes-phone", hash: "volumes", width: 390, height: 844, wait: sized},
	{name: "volume-phone", hash: "volumes", width: 390, height: 844, wait: sized, after: openVolume},
	{name: "create", hash: "volumes", width: 1440, height: 900, wait: sized, after: func(p *page) {
		p.press("Create")
		p.fill("Name", "database-7")
	}},
	{name: "export", hash: "volumes", width: 1440, height: 1200, wait: sized, after: openExport},
	{name: "export-phone-dark", hash: "volumes", width: 390, height: 844, dark: true, wait: sized, after: openExport},
	{name: "exports-light", hash: "exports?kind=NVMe-oF", width: 1440, height: 900, wait: listed, after: func(p *page) {
		eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
		p.press("Show hosts")
		p.press("Show states")
		p.until(`document.body.innerText.includes("optimized")`)
	}},
	{name: "exports-phone-dark", hash: "exports", width: 390, height: 844, dark: true, wait: listed},
	{name: "explorer-light", hash: "explorer?method=bdev_lvol_create", width: 1440, height: 900, wait: described, after: func(p *page) {
		p.fill("lvol_name", "database-7")
		p.fill("size_in_mib", "10240")
		p.fill("lvs_name", "ssd")
		p.fill("uuid", "ssd")
	}},
	{name: "explorer-dark", hash: "explorer?method=bdev_get_bdevs&q=get_bdevs", width: 1440, height: 960, dark: true, wait: described, after: func(p *page) {
		p.fill("name", "ssd/vol-00012")
		p.press("Call")
		p.until(`!!document.querySelector(".answers .tree")`)
		p.press("Table")
		p.press("rpc.py")
	}},
	{name: "explorer-nested", hash: "explorer?method=nvmf_subsystem_add_ns", width: 1440, height: 1400, wait: described},
	{name: "explorer-confirm", hash: "explorer?method=bdev_lvol_delete", width: 1440, height: 900, wait: described, after: func(p *page) {
		p.fill("name", "ssd/vol-00012")
		p.press("Call…")
		p.until(`!!document.querySelector("dialog[open]")`)
	}},
	{name: "explorer-phone", hash: "explorer?method=bdev_lvol_create", width: 390, height: 844, wait: described},
	{name: "explorer-phone-list", hash: "explorer", width: 390, height: 844, wait: `document.querySelectorAll(".methods a").length > 100`},
	{name: "access-light", hash: "access", width: 1440, height: 900, wait: `document.querySelectorAll("tbody tr").length > 100`, after: func(p *page) {
		p.fill("Method", "bdev_lvol_delete")
		p.fill("User", "viewer")
		p.press("Explain")
		p.until(`!!document.querySelector(".verdict .alert")`)
	}},
	{name: "access-phone-dark", hash: "access", width: 390, height: 844, dark: true, wait: `document.querySelectorAll("tbody tr").length > 100`},
	{name: "storage-light", hash: "storage", width: 1440, height: 900, wait: sizedDisks, after: openDisk},
	{name: "storage-phone-dark", hash: "storage", width: 390, height: 844, dark: true, wait: sizedDisks},
	{name: "storage-attach", hash: "storage", width: 1440, height: 900, wait: sizedDisks, after: func(p *page) { p.press("Attach a disk") }},
	{name: "storage-delete-dark", hash: "storage", width: 1440, height: 900, dark: true, wait: sizedDisks, after: func(p *page) {
		openDisk(p)
		p.press("Delete the lvstore")
		p.until(`/Hosts may use|are lost/.test(document.querySelector("dialog").innerText)`)
	}},
	{name: "audit-phone", hash: "audit", width: 390, height: 844, wait: auditRows + " > 0"},
	{name: "audit-light", hash: "audit", width: 1440, height: 900, wait: auditRows + " > 0"},
	{name: "audit-dark", hash: "audit", width: 1440, height: 900, dark: true, wait: auditRows + " > 0", after: func(p *page) {
		eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	}},
	{name: "overview-light", hash: "overview", width: 1440, height: 900, wait: plotted},
	{name: "overview-dark", hash: "overview", width: 1440, height: 900, dark: true, wait: plotted},
	{name: "overview-phone", hash: "overview", width: 390, height: 844, wait: plotted},
	{name: "overview-wide", hash: "overview", width: 2400, height: 1200, wait: plotted},
}

const (
	plotted   = `document.querySelectorAll("canvas").length === 3 && document.body.innerText.includes("provisioned to volumes") && /[1-9][0-9.]* k\/s/.test(document.querySelector(".plot").innerText)`
	sized     = `/ [KMGT]iB$/.test(document.querySelector(".body .c-size")?.innerText)`
	described = `!!document.querySelector(".method form")`
	listed    = `document.querySelectorAll("[role=gridcell]").length > 8`
)

func openVolume(p *page) {
	p.fill("Search name, UUID or export", "vol-00012")
	p.until(`document.body.innerText.includes("1 of ")`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.press("Show hosts")
	p.until(`document.body.innerText.includes("I/O queue")`)
}

func openExport(p *page) {
	p.fill("Search name, UUID or export", "vol-00081")
	p.until(`document.body.innerText.includes("1 of ")`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.press("Export…")
	p.fill("NQNs of hosts", hostA)
	p.has("1 host can connect after the last call.")
	p.shownCalls("Calls")
}

// TestScreenshots takes screenshots of the pages for people to review.
func TestScreenshots(t *testing.T) {
	folder := screenshotFolder(t)
	p := newPage(t)
	p.look(1440, 900, false)
	p.open("")
	p.until(`!!document.querySelector("form")`)
	p.shoot(filepath.Join(folder, "sign-in-light.png"))
	p.look(390, 844, true)
	p.shoot(filepath.Join(folder, "sign-in-phone-dark.png"))
	p.look(1440, 900, false)
	p.signIn("admin")
	p.until(plotted)
	if wait, err := time.ParseDuration(os.Getenv("SCREENSHOTS_AFTER")); err == nil {
		time.Sleep(wait) // in case longer plots are wanted
	}
	for _, s := range pictures {
		p.look(s.width, s.height, s.dark)
		p.show("none")
		p.show(s.hash)
		p.until(s.wait)
		if s.after != nil {
			s.after(p)
		}
		p.shoot(filepath.Join(folder, s.name+".png"))
		eval[chromedp.Void](p, `document.querySelector("dialog [aria-label=Close]")?.click()`)
	}
}

// look sets the window size and the preferred color scheme of the page.
func (p *page) look(width, height int64, dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do(chromedp.EmulateViewport(width, height), command0(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

func (p *page) shoot(file string) {
	p.t.Helper()
	eval[chromedp.Void](p, `new Promise((done) => setTimeout(done, 500))`) // transitions end
	text, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(file, text, 0o644))
}
