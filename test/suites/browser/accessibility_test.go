package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// axe returns the source of axe-core, in the version that the console's lock file pins.
func axe(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "run", ".", "-fetch", "axe-core")
	cmd.Dir, cmd.Stderr = repository+"/proxy/console/web", os.Stderr
	folder, err := cmd.Output()
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "axe.min.js"))
	require.NoError(t, err)
	return string(source)
}

// findings is a script that returns all violations that axe finds.
const findings = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations
	.flatMap((v) => v.nodes.map((n) => v.id + " at " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " "))))`

func TestPagesAreAccessible(t *testing.T) {
	p, source := newPage(t), axe(t)
	for _, dark := range []bool{false, true} {
		p.look(1440, 900, dark)
		p.open("")
		p.until(`!!document.querySelector("form")`)
		p.inject(source)
		assert.Empty(t, eval[[]string](p, findings), "sign-in, dark: %t", dark)
		p.signIn("admin")
		p.inject(source)
		for _, s := range pictures {
			if s.dark != dark && s.width == 1440 {
				continue // each page is checked only once, at its own width
			}
			p.look(s.width, s.height, dark)
			p.show("none")
			p.show(s.hash)
			p.until(s.wait)
			if s.after != nil {
				s.after(p)
			}
			// wait for transitions to end
			eval[chromedp.Void](p, `new Promise((done) => setTimeout(done, 450))`)
			assert.Empty(t, eval[[]string](p, findings), "%s, dark: %t", s.name, dark)
			eval[chromedp.Void](p, `document.querySelector("dialog [aria-label=Close]")?.click()`)
		}
		p.look(1440, 900, dark)
		p.press("admin")
		p.press("Sign out")
		p.until(`!!document.querySelector("form")`)
	}
}

func (p *page) inject(source string) {
	p.t.Helper()
	eval[chromedp.Void](p, source+"; null")
}

// Users can reach all functions using only the keyboard.
func TestConsoleWorksWithTheKeyboard(t *testing.T) {
	p := newPage(t)
	p.open("")
	p.tabTo(`f.name === "user"`)
	p.keys("admin")
	p.tabTo(`f.name === "password"`)
	p.keys(password + kb.Enter)
	p.until(`!!document.querySelector("nav")`)
	p.tabTo(`f.innerText === "Volumes" && f.tagName === "A"`)
	assert.True(t, eval[bool](p, `getComputedStyle(document.activeElement).outlineStyle !== "none"`), "the focus is visible")
	p.keys(kb.Enter)
	p.until(listed)
	p.tabTo(`f.type === "search"`)
	p.keys("vol-0008")
	p.until(`!document.querySelector(".shown").innerText.startsWith("10,")`)
	p.tabTo(`f.getAttribute("role") === "grid"`)
	p.keys(kb.ArrowDown + kb.ArrowDown)
	p.until(`document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.getAttribute("aria-rowindex") === "4"`)
	p.keys(kb.End)
	p.until(`document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.getAttribute("aria-rowindex") === document.activeElement.getAttribute("aria-rowcount")`)
	p.keys(kb.Home + kb.Enter)
	p.until(`document.activeElement.classList.contains("panel")`)
	p.tabTo(`f.innerText === "Grow"`)
	p.keys(kb.Enter)
	p.until(`!!document.querySelector("dialog[open]")`)
	p.keys(kb.Escape)
	p.until(`!document.querySelector("dialog[open]") && document.activeElement.innerText === "Grow"`)
	p.keys(kb.Escape)
	p.until(`!document.querySelector(".panel") && document.activeElement.getAttribute("role") === "grid"`)

	p.show("volumes?view=tree&q=vol-00080")
	p.until(`!!document.querySelector("[role=treegrid]") && document.querySelectorAll(".body .row").length === 5`)
	p.show("volumes?view=tree")
	p.show("explorer?method=bdev_get_bdevs")
	p.until(described)
	p.tabTo(`f.tagName === "INPUT" && f.labels?.[0]?.innerText === "name"`)
	p.keys("ssd/vol-00012" + kb.Enter)
	p.until(`!!document.querySelector(".answers .tree")`)
	p.tabTo(`f.getAttribute("role") === "tab" && f.innerText === "Tree"`)
	p.keys(kb.ArrowRight)
	p.until(`document.activeElement.innerText === "Table" && !!document.querySelector(".answers table")`)
}
