package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	exportNQN = "nqn.2020-04.io.spdk.csi:cluster-of-the-first-floor:uuid:7d9c0a8e-5b1f-4c02-9a57-6b1f00000001"
	hostNQN   = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-6b1f0000abcd"
)

// smallTestbed creates a separate testbed whose target has one lvstore and can be killed.
func smallTestbed(t *testing.T, targetArgs ...string) (w *testbed, target *exec.Cmd) {
	t.Helper()
	chromium(t)
	dir, err := os.MkdirTemp("", "stopped")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w = &testbed{dir: dir, log: &logFile{}}
	t.Cleanup(w.close)
	require.NoError(t, build(dir))
	socket := filepath.Join(dir, "spdk.sock")
	target = command(dir, filepath.Join(dir, "spdk-sim"), append([]string{"--socket", socket}, targetArgs...)...)
	require.NoError(t, w.start(target))
	w.target, err = dial(socket)
	require.NoError(t, err)
	for _, c := range []struct {
		method string
		params object
	}{
		{"bdev_null_create", object{"name": "disk0", "num_blocks": 1 << 20, "block_size": 4096}},
		{"bdev_lvol_create_lvstore", object{"bdev_name": "disk0", "lvs_name": "lvs0"}},
		{"bdev_lvol_create", object{"lvol_name": "v", "size_in_mib": 4400, "lvs_name": "lvs0", "thin_provision": true}}, // 108%
		{"nvmf_create_transport", object{"trtype": "TCP"}},
		{"nvmf_create_subsystem", object{"nqn": exportNQN, "serial_number": "V"}},
		{"nvmf_subsystem_add_host", object{"nqn": exportNQN, "host": hostNQN}},
	} {
		_, err := w.target.call(c.method, c.params)
		require.NoError(t, err)
	}
	proxy := filepath.Join(dir, "spdk-proxy")
	hash := command(dir, proxy, "hash-password")
	hash.Stdin, hash.Stdout = strings.NewReader(password+"\n"), nil
	out, err := hash.Output()
	require.NoError(t, err)
	address, err := freeAddress()
	require.NoError(t, err)
	const small = `
listen: "%[1]s"
tls: {self_signed_dir: %[2]s}
target: {socket: %[2]s/spdk.sock, save: {dir: %[2]s/saved}}
users:
  - {name: admin, password_hash: "%[3]s", roles: [admin]}
  - {name: team, password_hash: "%[3]s", roles: [csi-controller, read-only], tenant: team}
tenants: {team: {lvstores: [lvs0], quota: {gib: 5, volumes: 4}, addresses: ["192.0.2.11:4420"], hosts: ["nqn.2014-08.org.nvmexpress:uuid:*"]}}
limits: {users_in_flight: {team: 64}, users_calls_per_second: {team: 5000}}
log: {format: json}
`
	require.NoError(t, w.serve(proxy, dir, address, fmt.Sprintf(small, address, dir, strings.TrimSpace(string(out)))))
	return w, target
}

// The console shows a new user accurate warnings, limits, names and errors.
func TestNewUserSeesAccurateConsole(t *testing.T) {
	w, _ := smallTestbed(t, "--no-auto-examine")
	p := newPageAt(t, w)
	p.signIn("admin")
	t.Run("no warning about a target that loads nothing that hosts wrote", func(t *testing.T) {
		p.has("108 %")
		assert.NotContains(t, eval[string](p, `document.querySelector("main").innerText`), "bdev_auto_examine")
	})
	t.Run("overcommitment is highlighted", func(t *testing.T) {
		p.has("108 %")
		p.until(`!!document.querySelector(".provisioned.over") && !!document.querySelector("span.over")`)
	})
	t.Run("a saved configuration that was chosen is named", func(t *testing.T) {
		saved := command(w.dir, filepath.Join(w.dir, "spdk-proxy"), "saved", "use", "--dir", filepath.Join(w.dir, "saved"), "current.json")
		require.NoError(t, saved.Run())
		p.do(chromedp.Reload())
		p.has("Another saved configuration was chosen on ")
	})
	t.Run("an unknown address does not show another page", func(t *testing.T) {
		p.show("volume")
		p.has("The console has no page volume")
		p.until(`document.title === "Page not found – SPDKGate"`)
	})
	t.Run("search fields follow the address", func(t *testing.T) {
		for _, page := range []string{"volumes", "exports", "access", "audit", "explorer"} {
			for _, q := range []string{"", "spdk_get_version", "iostat", ""} {
				p.show(page + "?q=" + q)
				p.until(`document.querySelector("main input[type=search]")?.value === "` + q + `" && location.hash.startsWith("#/` + page + `")`)
			}
		}
		p.show("explorer?q=spdk_get_version")
		p.until(`document.querySelectorAll(".methods a").length < 10`)
	})
	t.Run("SPDK's error codes are shown", func(t *testing.T) {
		p.show("explorer?method=bdev_null_create")
		p.fill("name", "disk0")
		p.fill("num_blocks", "8")
		p.fill("block_size", "512")
		p.press("Call…")
		p.press("Make the call")
		p.has("code -17")
	})
	t.Run("long names are shortened in the middle", func(t *testing.T) {
		p.look(900, 800, false)
		p.show("exports")
		p.until(`!!document.querySelector(".body .c-id .ends")`)
		shown := func(column, end string) {
			t.Helper()
			assert.True(t, eval[bool](p, `(() => {
				const ends = document.querySelector(".body .`+column+` .ends"), tail = ends.lastChild.getBoundingClientRect(), cell = ends.closest(".cell").getBoundingClientRect();
				return ends.textContent.endsWith("`+end+`") && tail.width > 50 && tail.right <= cell.right + 0.5
			})()`), column)
		}
		shown("c-id .strong", "6b1f00000001")
		p.look(1440, 900, false)
		shown("c-id .strong", "6b1f00000001")
		shown("c-hosts", "6b1f0000abcd")
		assert.True(t, eval[bool](p, `(() => {
			const name = document.querySelector(".body .c-id .ends"), data = new DataTransfer();
			getSelection().selectAllChildren(name);
			name.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true, cancelable: true }));
			getSelection().removeAllRanges();
			return data.getData("text/plain") === name.textContent;
		})()`), "a name is copied as one line")
	})
	t.Run("dialogs focus their first field and state what will be lost", func(t *testing.T) {
		p.show("volumes")
		p.until(`/ [GM]iB$/.test(document.querySelector(".body .c-size")?.innerText)`)
		p.press("Create")
		p.until(`document.activeElement.matches("dialog select")`)
		p.press("Cancel")
		eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
		p.press("Delete")
		p.until(`document.activeElement.matches("dialog input")`)
		p.has("All data of lvs0/v (nothing allocated) is lost.")
		p.press("Cancel")
	})
	t.Run("a tenant sees its own quota and no misleading messages", func(t *testing.T) {
		p.press("admin")
		p.press("Sign out")
		p.signIn("team")
		p.until(`document.querySelectorAll(".stores li").length === 1`)
		p.has("No warnings about tenant team")
		p.has("Quota of tenant team")
		quota := func(label string) string {
			return eval[string](p, `[...document.querySelectorAll(".quota li")].find((e) => e.innerText.startsWith("`+label+`"))?.innerText ?? ""`)
		}
		p.until(`document.querySelectorAll(".quota li").length === 7`)
		assert.Regexp(t, `^Running at once\s+\d+ of 64 used$`, strings.TrimSpace(quota("Running")))
		assert.Regexp(t, `^Per second\s+\d+ of 5,000 used$`, strings.TrimSpace(quota("Per second")))
		assert.Equal(t, "Space\n4.30 GiB of 5 GiB used", strings.TrimSpace(quota("Space")))
		assert.Equal(t, "Volumes and snapshots\n1 of 4 used", strings.TrimSpace(quota("Volumes")))
		assert.Equal(t, 86, eval[int](p, `Number(document.querySelector(".quota [role=meter]").getAttribute("aria-valuenow"))`))
		assert.Empty(t, quota("Keys"), "the proxy does not store any")
		assert.Zero(t, eval[float64](p, `document.querySelector('[aria-label="Quota: Subsystems"] .fill').getBoundingClientRect().width`), "nothing is used, so no bar is shown")
		p.until(`/Read [0-9]/.test(document.querySelector(".plot").innerText)`)
		p.has("I/O of your volumes")
		p.has("No I/O at your volumes at present.")
		text := eval[string](p, `document.querySelector("main").innerText`)
		for _, untrue := range []string{"No such device", "not saved by the proxy", "not reported by this target", "not shown to you", "target does not have it", "No activity", "do not permit"} {
			assert.NotContains(t, text, untrue)
		}
		assert.Empty(t, w.log.refused("team"), "the overview makes no calls that a tenant may not make")
		p.show("access")
		p.has("192.0.2.11:4420")
		p.has("nqn.2014-08.org.nvmexpress:uuid:*")
		p.has("of 64 running, 0 waiting")
		p.has("of 5,000 in the last second")
	})
	t.Run("a tenant sees which of its volumes are busiest", func(t *testing.T) {
		p.show("none")
		// The simulated target does no I/O, so the test supplies growing counters to the page.
		eval[chromedp.Void](p, `(() => {
			const real = window.fetch;
			let n = 0;
			window.fetch = async (path, init) => {
				const response = await real(path, init);
				if (!String(init?.body).includes("bdev_get_iostat")) return response;
				const answer = await response.json();
				n++;
				for (const b of answer.result.bdevs) Object.assign(b, { num_read_ops: n * 1e6, bytes_read: n * 4096e6, read_latency_ticks: n * 1e6 });
				return new Response(JSON.stringify(answer), { status: response.status, headers: response.headers });
			};
		})()`)
		p.show("overview")
		p.until(`document.querySelector(".busiest tbody td")?.innerText === "lvs0/v"`)
		assert.Regexp(t, `^lvs0/v\s+[\d.]+ [kM]/s\s+[\d.]+ [MG]iB/s\s+[\d.]+ (ns|µs|ms)$`, eval[string](p, `document.querySelector(".busiest tbody tr").innerText`))
		p.until(`!/Read (0|–)/.test(document.querySelector(".plot").innerText)`)
		source := axe(t)
		p.inject(source)
		for _, width := range []int64{1440, 390} {
			p.look(width, 900, width == 390)
			eval[chromedp.Void](p, `new Promise((done) => setTimeout(done, 450))`) // transitions end
			assert.Empty(t, eval[[]string](p, findings), "%d pixels", width)
			assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll(".tiles span, .busiest")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)`), "%d pixels: these are cut off", width)
		}
		p.look(1440, 900, false)
	})
	t.Run("the quota is updated when the tenant creates a volume", func(t *testing.T) {
		_, err := w.target.call("bdev_lvol_create", object{"lvol_name": "w", "size_in_mib": 400, "lvs_name": "lvs0", "thin_provision": true})
		require.NoError(t, err)
		p.show("overview")
		p.has("2 of 4 used")
	})
}

// A stopped target is reported once. The page continues when the target is running again.
func TestStoppedTargetIsReportedOnce(t *testing.T) {
	w, target := smallTestbed(t, "--no-auto-examine")
	p := newPageAt(t, w)
	p.signIn("admin")
	p.has("Live")
	p.until(`document.querySelectorAll("canvas").length === 3 && /Read [0-9]/.test(document.querySelector(".plot").innerText)`)
	require.NoError(t, target.Process.Kill())
	p.until(`document.querySelector(".light").innerText === "Target down"`)
	p.has("The target does not answer")
	seen := 0
	for range 40 { // other data is read in the meantime: samples, figures and the saved configuration
		eval[chromedp.Void](p, `new Promise((done) => setTimeout(() => done(null), 250))`)
		seen = max(seen, eval[int](p, `document.querySelectorAll("main .alert").length`))
	}
	assert.Equal(t, 1, seen, "banners for one cause")
	for _, page := range []string{"volumes", "exports", "access", "overview"} {
		p.show(page)
		p.until(`document.title.toLowerCase().startsWith("` + page + `")`)
	}
	again := command(w.dir, filepath.Join(w.dir, "spdk-sim"), "--socket", filepath.Join(w.dir, "spdk.sock"))
	require.NoError(t, w.start(again))
	p.until(`document.querySelector(".light").innerText === "Live"`)
	p.until(`![...document.querySelectorAll("main .alert")].some((a) => a.innerText.includes("does not answer"))`)
}

// If the target loads lvstores that hosts have written to volumes, a warning appears on the first
// page.
func TestExaminingTargetShowsAWarning(t *testing.T) {
	w, _ := smallTestbed(t)
	p := newPageAt(t, w)
	p.signIn("admin")
	p.has("The target loads what hosts write into their volumes (bdev_auto_examine is on).")
	p.has("Tenants and raw block volumes of pods are refused.")
}

// If a restart of the target would not restore a RAID, the first page shows a warning.
func TestUnrestorableRAIDShowsAWarning(t *testing.T) {
	w, _ := smallTestbed(t, "--no-auto-examine")
	p := newPageAt(t, w)
	p.signIn("admin")
	p.show("none")
	// The simulated target has no RAIDs, so the test supplies one to the page.
	eval[chromedp.Void](p, `(() => {
		const real = window.fetch;
		window.fetch = async (path, init) => {
			const response = await real(path, init);
			if (!String(init?.body).includes("spdkgate_config_get_status")) return response;
			const answer = await response.json();
			answer.result.not_restorable = [{ raid: "r", reason: "its disk d0 gets another UUID" }];
			return new Response(JSON.stringify(answer), { status: response.status, headers: response.headers });
		};
	})()`)
	p.show("overview")
	p.has("A restart of the target would not restore RAID r: its disk d0 gets another UUID.")
}
