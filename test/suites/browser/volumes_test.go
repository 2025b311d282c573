package browser

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shifts adds up a page's layout shifts, except those that the user caused.
const shifts = `new Promise((done) => {
	let sum = 0;
	const observer = new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) sum += e.value; });
	observer.observe({type: "layout-shift", buffered: true});
	setTimeout(() => { observer.disconnect(); done(sum); }, 100);
})`

func TestFirstContentAppearsWithoutLayoutShifts(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	for page, content := range map[string]string{
		"overview": `!!document.querySelector(".capacity")`, "volumes": listed, "exports": listed, "explorer?method=bdev_lvol_create": described,
		"access": `document.querySelectorAll("tbody tr").length > 100`, "audit": auditRows + " > 0",
	} {
		// otherwise, the next navigation would remain on the same page
		p.do(chromedp.Navigate("about:blank"))
		p.open("#/" + page)
		p.until(content)
		t.Logf("%-32s first paint %4.0f ms, content %4.0f ms after navigation", page,
			eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`), eval[float64](p, `performance.now()`))
		switch page {
		case "overview":
			p.until(plotted)
		case "volumes", "exports":
			p.until(wholeRead)
		}
		assert.Less(t, eval[float64](p, shifts), 0.1, "%s: parts of the page move while it loads", page)
	}
}

// wholeRead is true once the page has loaded the list of all bdevs, its last request.
const wholeRead = `performance.getEntriesByType("resource").some((e) => e.encodedBodySize > 8e6)`

// Volumes and exports are listed before SPDK has returned the long list of bdevs.
func TestListsDoNotWaitForBdevs(t *testing.T) {
	p := newPage(t)
	open := p.testbed.calls.shut("bdev_get_bdevs")
	t.Cleanup(open)
	p.signIn("admin")
	p.show("exports")
	p.until(listed)
	p.show("volumes")
	p.until(listed)
	const sizes = `[...document.querySelectorAll(".body .c-size")].map((c) => c.innerText)`
	assert.True(t, eval[bool](p, sizes+`.every((s) => s === "–")`))
	p.until(`document.querySelector(".shown").innerText.endsWith(", reading sizes…")`)
	p.until(`[...document.querySelectorAll("button")].some((b) => b.innerText === "Create" && b.disabled)`)
	p.press("Size")
	p.has("Reading volumes…")
	open()
	p.until(sizes + `.length > 10 && ` + sizes + `.every((s) => / [MG]iB$/.test(s))`)
	p.until(`[...document.querySelectorAll("button")].some((b) => b.innerText === "Create" && !b.disabled)`)
}

func TestVolumesPageHandlesManyVolumes(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("volumes")
	p.until(listed)
	rows, err := strconv.Atoi(eval[string](p, `document.querySelector(".grid").getAttribute("aria-rowcount")`))
	require.NoError(t, err)
	assert.Greater(t, rows, volumeCount)
	assert.Less(t, eval[int](p, `document.querySelectorAll(".body .row").length`), 80, "rows out of view must not be in the page")

	frames := eval[struct{ Frames, Seconds, Longest, Rows float64 }](p, scroll)
	t.Logf("scrolling through %.0f rows: %.1f frames/s, longest frame %.0f ms", frames.Rows, frames.Frames/frames.Seconds, frames.Longest)

	p.fill("Search name, UUID or export", "server-007")
	p.until(`/^4 of /.test(document.querySelector(".shown").innerText)`)
	p.fill("Search name, UUID or export", "vol-00080")
	p.until(`/^5 of /.test(document.querySelector(".shown").innerText)`)
	p.press("Tree")
	p.until(`[...document.querySelectorAll(".body .row")].map((r) => r.getAttribute("aria-level")).join() === "1,2,3,4,2"`)
	for _, width := range []int64{390, 1440} { // names of snapshots differ only at their ends
		p.look(width, 900, false)
		p.until(`document.documentElement.clientWidth === ` + strconv.FormatInt(width, 10))
		assert.Equal(t, []string{"daily-1", "daily-2", "daily-3", "l-00080", "80-test"}, eval[[]string](p, `[...document.querySelectorAll(".body .c-name")].map((cell) => {
			const name = cell.lastElementChild, end = name.lastElementChild ?? name, seen = end.getBoundingClientRect();
			const whole = end.scrollWidth <= end.clientWidth + 1 || name.className === "ends";
			return whole && seen.width > 30 && seen.right <= cell.getBoundingClientRect().right + 0.5 ? name.textContent.slice(-7) : "cut: " + name.textContent;
		})`), "%d pixels", width)
		assert.True(t, eval[bool](p, `(() => { const grid = document.querySelector(".grid"); return grid.scrollWidth <= grid.clientWidth })()`), "no column is cut off at %d pixels", width)
	}
	p.press("List")
	p.fill("Search name, UUID or export", "")
	p.press("Size")
	p.press("Size")
	p.until(`document.querySelector(".body .row").innerText.includes("40 GiB")`)
}

// scroll scrolls a list by 250 pixels per frame, like a fast swipe. If there is no frame for a
// second, it continues, because a headless browser on a busy machine can stop drawing.
const scroll = `new Promise((done) => {
	const grid = document.querySelector(".grid"), rows = Number(grid.getAttribute("aria-rowcount"));
	let frames = 0, longest = 0, start = 0, last = 0;
	const next = () => {
		const late = setTimeout(() => { cancelAnimationFrame(frame); step(performance.now()); }, 1000);
		const frame = requestAnimationFrame((now) => { clearTimeout(late); step(now); });
	};
	const step = (now) => {
		if (!start) start = last = now;
		else { frames++; longest = Math.max(longest, now - last); last = now; }
		grid.scrollTop += 250;
		if (now - start < 5000 && grid.scrollTop + grid.clientHeight < grid.scrollHeight - 1) return next();
		grid.scrollTop = 0;
		done({Frames: frames, Seconds: (now - start) / 1000, Longest: longest, Rows: rows});
	};
	next();
})`

// Administrators and tenants can manage a volume through the page's dialogs from creation to
// deletion.
func TestVolumeLifecycle(t *testing.T) {
	w, scratch := realOrSharedTestbed(t), "scratch"
	if w != shared {
		scratch = "lvs0"
	}
	for user, store := range map[string]string{"admin": scratch, "team": "team"} {
		t.Run(user, func(t *testing.T) { volumeLifecycle(t, w, user, store) })
	}
}

func volumeLifecycle(t *testing.T, w *testbed, user, store string) {
	p, volume := newPageAt(t, w), "pvc-3f1c5a0e-8d0b-4e6f-9a55-6b1f00000001" // a name as spdk-csi chooses it
	p.signIn(user)
	p.show("volumes?store=" + store)
	p.until(`document.querySelectorAll(".body .row").length > 0`)
	p.press("Create")
	p.fill("Name", volume)
	p.fill("Size", "2")
	p.has("Takes no space until hosts write.")
	p.press("Create")
	p.has("Created " + store + "/" + volume)
	p.fill("Search name, UUID or export", volume)
	p.until(`/^1 of /.test(document.querySelector(".shown").innerText)`)
	row := `document.querySelector('.body .c-name [title="` + volume + `"]')` // other volumes may still be listed
	p.until(`!!` + row)
	eval[chromedp.Void](p, row+`.closest(".row").click()`)
	p.until(`document.querySelector(".panel h2")?.innerText === "` + volume + `"`)
	assert.True(t, eval[bool](p, `(() => { const panel = document.querySelector(".panel"); return panel.scrollWidth <= panel.clientWidth })()`), "nothing in the panel is cut off")
	p.press("Grow")
	p.fill("New size", "3")
	p.has("2 GiB becomes 3 GiB")
	eval[chromedp.Void](p, `document.querySelector("dialog button[type=submit]").click()`)
	p.until(`!document.querySelector("dialog[open]") && document.querySelector(".panel").innerText.includes("3 GiB")`)
	eval[chromedp.Void](p, `[...document.querySelectorAll(".panel .buttons button")].find((b) => b.innerText === "Limits").click()`)
	p.fill("Reads and writes per second", "2000")
	p.press("Set limits")
	p.has("Set limits of " + store + "/" + volume)
	p.until(`!document.querySelector("dialog[open]") && /\b2(\.0+)? k IO\/s/.test(document.querySelector(".panel").innerText)`)
	p.press("Snapshot")
	p.fill("Name of the snapshot", volume+"-before")
	p.press("Take the snapshot")
	p.until(`/^2 of /.test(document.querySelector(".shown").innerText)`)
	for _, name := range []string{volume, volume + "-before"} {
		p.until(`!document.querySelector("dialog[open]")`)
		eval[chromedp.Void](p, `[...document.querySelectorAll(".body .row")].find((r) => r.querySelector('.c-name [title="`+name+`"]')).click()`)
		p.until(`document.querySelector(".panel h2")?.innerText === "` + name + `"`)
		p.press("Delete")
		p.until(`document.querySelector("dialog button[type=submit]").disabled`)
		p.fill("To confirm, type "+name, name)
		p.until(`!document.querySelector("dialog button[type=submit]").disabled`)
		eval[chromedp.Void](p, `document.querySelector("dialog button[type=submit]").click()`)
		p.has("Deleted " + store + "/" + name)
		p.until(`!document.querySelector('.body .c-name [title="` + name + `"]')`)
	}
}

// The list shows each volume's I/O in the last minute and can be sorted by it; the panel shows the
// last hour. The proxy needs two samples, one minute apart.
func TestVolumeIOIsShown(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("volumes")
	p.until(sized)
	const rates = `[...document.querySelectorAll(".body .row .c-io")].map((c) => c.innerText)`
	p.until(rates + `.some((r) => r.endsWith("/s"))`)
	p.press("I/O")
	p.press("I/O")
	p.until(rates + `.length > 5 && ` + rates + `.slice(0, 5).every((r) => r.endsWith("/s"))`)
	p.look(390, 844, false)
	p.until(`innerWidth === 390`)
	assert.True(t, eval[bool](p, `(() => { const grid = document.querySelector(".grid"); return grid.scrollWidth <= grid.clientWidth })()`), "the I/O is visible on a phone")
	p.look(1440, 900, false)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelectorAll(".panel .io .plot canvas").length === 3`)
	assert.Contains(t, eval[string](p, `document.querySelector(".panel .io .canvas").getAttribute("aria-label")`), "at most the last 1 h")

	p = newPage(t)
	p.signIn("viewer")
	p.show("volumes?q=vol-09")
	p.until(`document.querySelectorAll(".body .row").length > 5`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelector(".panel .io")?.innerText.includes("No I/O in the samples")`)
}

// Once a volume's histogram is switched on, its latency percentiles are shown, and the list can be
// sorted by them. Until then, the list and the panel show that the histogram is off. The proxy
// needs two samples, one minute apart.
func TestVolumeLatencyPercentilesAreShown(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("volumes?sort=-io")
	const column = `[...document.querySelectorAll(".body .row .c-p99")].map((c) => c.innerText)`
	p.until(sized)
	p.until(column + `[0] === "off"`)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelector(".panel .measuring")?.innerText.includes("latency histogram is off")`)
	name := eval[string](p, `document.querySelector(".panel h2").innerText`)
	p.press("Measure latencies…")
	p.has("58 KiB")
	assert.Contains(t, eval[string](p, `document.querySelector("dialog pre").textContent`), `"max_nsec":18446744073709551615`)
	p.press("Switch on")
	p.has("Switched the latency histogram of")
	p.press("p99")
	p.press("p99")
	p.until(column + `[0].endsWith("ms")`)
	assert.Contains(t, eval[string](p, `document.querySelector(".body .row").textContent`), name)
	assert.Regexp(t, `^4\.\d+ ms$`, eval[string](p, column+`[0]`))
	assert.Regexp(t, `^2\d\d µs$`, eval[string](p, `document.querySelector(".body .row .c-p50").innerText`))
	p.until(`[...document.querySelectorAll(".panel .plot h3")].some((h) => h.innerText === "Latency percentiles")`)
	p.press("Stop measuring…")
	p.press("Switch off")
	p.until(column + `.every((c) => !c.endsWith("ms"))`)

	p = newPage(t)
	p.signIn("viewer")
	p.show("volumes?sort=-io")
	p.until(sized)
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.until(`document.querySelector(".panel .measuring")?.innerText.includes("A user whose role permits bdev_enable_histogram")`)
	assert.False(t, eval[bool](p, `[...document.querySelectorAll(".panel button")].some((b) => b.innerText.includes("Measure"))`))
}

func TestTenantSeesOnlyItsOwnObjects(t *testing.T) {
	p := newPage(t)
	p.signIn("team")
	p.until(`document.querySelectorAll(".stores li").length === 1`)
	p.has("Your roles do not permit reading the quota")
	p.has("I/O of your volumes")
	p.until(`/Read [0-9]/.test(document.querySelector(".plot").innerText)`)
	p.show("volumes")
	p.until(`document.querySelector(".shown")?.innerText === "` + strconv.Itoa(teamVolumes) + ` of ` + strconv.Itoa(teamVolumes) + ` volumes"`)
	text := eval[string](p, `document.body.innerText`)
	assert.NotContains(t, text, "vol-00012\n")
	assert.NotContains(t, text, "archive")
	p.show("exports")
	p.has("Nothing is exported")
	assert.False(t, eval[bool](p, `[...document.querySelectorAll("nav a")].some((a) => a.innerText.includes("Audit"))`), "only administrators see the audit log")
}
