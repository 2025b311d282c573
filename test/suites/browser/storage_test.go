package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	panelText = `(document.querySelector(".panel")?.innerText ?? "")`
	submits   = `document.querySelector("dialog button[type=submit]")`
)

const sizedDisks = `document.querySelectorAll(".body .row").length > 3 && document.querySelector(".body").innerText.includes("TiB")`

func openDisk(p *page) {
	p.t.Helper()
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(panelText + `.includes("Volumes")`)
}

// submit presses the button that makes a dialog's call.
func (p *page) submit() {
	p.t.Helper()
	p.until(`!!` + submits + ` && !` + submits + `.disabled`)
	eval[chromedp.Void](p, submits+`.click()`)
}

func (p *page) buttons(scope string) string {
	p.t.Helper()
	return eval[string](p, `[...document.querySelectorAll("`+scope+` .buttons button, .toolbar button")].map((b) => b.innerText).join()`)
}

// A disk and an lvstore on it can be managed through the page's dialogs from creation to deletion.
func TestDiskAndStoreLifecycle(t *testing.T) {
	p := newPageAt(t, exportTestbed(t))
	image := filepath.Join(p.testbed.dir, "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 1<<30))
	p.signIn("admin")
	p.show("storage")
	p.press("Attach a disk")
	p.fill("Kind", "aio")
	p.fill("Name of the disk", "image")
	p.fill("Path on the server", "image")
	p.has("A path on the server that begins with /")
	p.fill("Path on the server", image)
	p.submit()
	p.has("Attached image")
	p.until(`!document.querySelector("dialog[open]")`)

	p.show("storage?use=unused&id=image")
	p.until(panelText + `.includes("unused")`)
	p.press("Find its lvstore")
	p.submit()
	p.until(`!document.querySelector("dialog[open]")`)
	p.press("Create an lvstore")
	p.fill("Name of the lvstore", "lvs0")
	p.has("There is an lvstore with this name")
	p.fill("Name of the lvstore", "from-browser")
	p.fill("Cluster size", "1")
	p.has("about 1,024 clusters of 1 MiB")
	assert.True(t, eval[bool](p, submits+`.disabled`), "the disk's name was not typed")
	p.fill("To confirm, type image", "image")
	p.submit()
	p.has("Created the lvstore from-browser")

	p.show("storage?id=image")
	p.until(panelText + `.includes("lvstore from-browser")`)
	assert.NotContains(t, p.buttons(".panel"), "Remove", "its store would go with it")
	require.Equal(t, http.StatusOK, p.postCall("admin", "bdev_lvol_create", `{"lvs_name":"from-browser","lvol_name":"kept","size_in_mib":8}`))
	p.press("Rename the lvstore")
	p.fill("New name", "renamed")
	p.until(`document.querySelector("dialog").innerText.includes("renamed/kept")`)
	p.submit()
	p.until(panelText + `.includes("lvstore renamed")`)

	p.press("Delete the lvstore")
	p.until(`document.querySelector("dialog").innerText.includes("1 volume and all data in it are lost: kept")`)
	assert.True(t, eval[bool](p, submits+`.disabled`))
	p.fill("To confirm, type renamed", "renamed")
	p.submit()
	p.has("Deleted the lvstore renamed")
	p.until(panelText + `.includes("unused")`)
	p.press("Remove")
	p.has("it can be attached again")
	p.fill("To confirm, type image", "image")
	p.submit()
	p.has("Removed image")
	p.until(`!document.querySelector(".panel")`)
}

func TestStoreWithExportsIsNotDeleted(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("storage")
	p.fill("Search name, address or lvstore", "lvstore ssd")
	p.until(`document.querySelectorAll(".body .row").length === 1`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.press("Delete the lvstore")
	p.until(`/Hosts may use [\d,]+ volumes of this lvstore: .* more\. Withdraw their exports first/.test(document.querySelector("dialog").innerText)`)
	assert.True(t, eval[bool](p, submits+`.disabled`))
	assert.False(t, eval[bool](p, `document.querySelector("dialog").innerText.includes("To confirm")`))
}

// Users with read-only access see no buttons, and a tenant's users see only the tenant's lvstores.
func TestStoragePageShowsOnlyPermittedActions(t *testing.T) {
	w, all := realOrSharedTestbed(t), 4
	if w != shared {
		all = 2
	}
	for user, stores := range map[string]int{"viewer": all, "team": 1} {
		p := newPageAt(t, w)
		p.signIn(user)
		p.show("storage?use=store")
		p.until(`document.querySelectorAll(".body .row").length > 0`)
		assert.Equal(t, stores, eval[int](p, `document.querySelectorAll(".body .row").length`), user)
		eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
		p.until(panelText + `.includes("Lvstore")`)
		assert.Empty(t, strings.Trim(p.buttons(".panel"), ","), user)
		p.look(390, 844, false)
		p.show("storage")
		p.until(`innerWidth === 390 && document.querySelectorAll(".body .row .c-use").length > 0`)
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll(".body .row .c-use")].filter((use) => use.scrollWidth > use.clientWidth).map((use) => use.innerText)`), "phones show what disks are used for")
	}
}
