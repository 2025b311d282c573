package browser

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// busyVolumes maps volumes on a real target to the NQNs of their exports. Hosts write to these
// volumes during TestPagesShowTheIOOfARealTarget.
var busyVolumes = map[string]string{
	"ssd/postgres-0": "nqn.2026-01.example.storage:postgres-0", "ssd/postgres-1": "nqn.2026-01.example.storage:postgres-1",
	"ssd/registry": "nqn.2026-01.example.storage:registry", "team/web": teamNQN + "web",
}

// fillDisks adds lvstores on AIO disks, volumes, snapshots and exports to a real target.
func (w *testbed) fillDisks(t *testing.T) {
	t.Helper()
	for disk, gib := range map[string]int64{"nvme0n1": 64, "nvme1n1": 16, "nvme2n1": 8} {
		file := filepath.Join(w.dir, disk)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, gib<<30))
		w.call(t, "bdev_aio_create", object{"name": disk, "filename": file, "block_size": 4096})
	}
	w.call(t, "bdev_lvol_create_lvstore", object{"bdev_name": "nvme0n1", "lvs_name": "ssd", "clear_method": "none"})
	w.call(t, "bdev_lvol_create_lvstore", object{"bdev_name": "nvme1n1", "lvs_name": "archive", "clear_method": "none"})
	volume := func(store, name string, mib int) {
		w.call(t, "bdev_lvol_create", object{"lvol_name": name, "size_in_mib": mib, "lvs_name": store, "thin_provision": true})
	}
	for _, name := range []string{"postgres-0", "postgres-1", "registry", "mail", "build-cache"} {
		volume("ssd", name, 10<<10)
	}
	volume("ssd", "scratch", 4<<10)
	for i := range 9 {
		volume("archive", fmt.Sprintf("backup-%02d", i), 1<<10)
	}
	w.call(t, "bdev_lvol_snapshot", object{"lvol_name": "ssd/mail", "snapshot_name": "mail-daily-1"})
	w.call(t, "bdev_lvol_clone", object{"snapshot_name": "ssd/mail-daily-1", "clone_name": "mail-test"})
	// 64 GiB are now provisioned, slightly more than the lvstore's capacity
	w.call(t, "bdev_set_qos_limit", object{"name": "ssd/registry", "rw_ios_per_sec": 2000})
	for name, nqn := range busyVolumes {
		w.call(t, "nvmf_create_subsystem", object{"nqn": nqn, "serial_number": filepath.Base(name), "ana_reporting": true})
		w.call(t, "nvmf_subsystem_add_ns", object{"nqn": nqn, "namespace": object{"bdev_name": name}})
		w.call(t, "nvmf_subsystem_add_host", object{"nqn": nqn, "host": hostA})
		w.call(t, "nvmf_subsystem_add_listener", object{"nqn": nqn, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
	}
}

// writeTo connects a host to an export, and reads and writes random blocks until the test ends.
func writeTo(t *testing.T, nqn string) {
	t.Helper()
	device, err := initiator.Connect(initiator.Target{Address: "127.0.0.1:4420", NQN: nqn, HostNQN: hostA})
	require.NoError(t, err)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		block := make([]byte, 16<<10)
		places := min(device.Bytes(), 1<<30) / int64(len(block))
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			at := rand.Int64N(places) * int64(len(block))
			_, err := device.ReadAt(block, at)
			if err == nil && at%3 == 0 {
				_, err = device.WriteAt(block, at)
			}
			if !assert.NoError(t, err, nqn) {
				return
			}
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(sync.OnceFunc(func() { close(ended); <-done; _ = device.Close() }))
}

// On a real target with hosts that read and write, the pages show the I/O and latencies that SPDK
// reports, to administrators and to tenants. The test takes screenshots of all pages.
func TestPagesShowTheIOOfARealTarget(t *testing.T) {
	if !realtarget.Given() {
		t.Skipf("set %s to the socket of an empty spdk_tgt", realtarget.Variable)
	}
	w, folder := exportTestbed(t), screenshotFolder(t)
	w.calls.unchanged()
	w.fillDisks(t)
	for _, nqn := range busyVolumes {
		writeTo(t, nqn)
	}
	p, source := newPageAt(t, w), axe(t)
	p.signIn("admin")
	p.show("volumes?sort=-io")
	const rates = `[...document.querySelectorAll(".body .row .c-io")].map((c) => c.innerText)`
	p.until(rates + `.slice(0, 4).every((r) => r.endsWith("/s")) && ` + rates + `.length > 10`)
	assert.ElementsMatch(t, []string{"postgres-0", "postgres-1", "registry", "web"}, eval[[]string](p, `[...document.querySelectorAll(".body .row .c-name")].slice(0, 4).map((c) => c.innerText.split("\n").at(-1))`))
	eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
	p.press("Measure latencies…")
	p.press("Switch on")
	p.until(`[...document.querySelectorAll(".body .row .c-p99")].some((c) => /[µm]s$/.test(c.innerText))`)
	require.Equal(t, 403, p.postCall("viewer", "bdev_lvol_delete", `{"name":"ssd/mail"}`))

	row := func(name string) func() {
		return func() {
			found := `[...document.querySelectorAll(".body .row")].find((r) => r.textContent.includes("` + name + `"))`
			p.until(`!!` + found)
			eval[chromedp.Void](p, found+`.click()`)
			p.until(`!!document.querySelector(".panel")`)
		}
	}
	rows := `document.querySelectorAll(".body .row").length > 1`
	shots := []struct {
		name, hash, wait string
		after            func()
	}{
		{"overview", "overview", `document.body.innerText.includes("provisioned to volumes") && /Read [0-9]/.test(document.querySelector(".plot").innerText)`, nil},
		{"volumes", "volumes?sort=-io", sized, nil},
		{"volume", "volumes", sized, row("postgres-0")},
		{"tree", "volumes?view=tree", sized, nil},
		{"exports", "exports", `[...document.querySelectorAll(".body .c-id")].map((c) => c.textContent).join() === "other,postgres-0,postgres-1,registry,web"`, nil},
		{"export", "exports", rows, row("registry")},
		{"storage", "storage", rows, nil},
		{"store", "storage", rows, row("nvme0n1")},
		{"explorer", "explorer?method=bdev_lvol_create", described, nil},
		{"access", "access", `document.querySelectorAll("tbody tr").length > 20`, nil},
		{"audit", "audit", auditRows + " > 0", nil},
		{"create", "volumes", sized, func() { p.press("Create"); p.fill("Name", "database-7") }},
		{"export-dialog", "volumes", sized, func() {
			row("mail-test")()
			p.press("Export…")
			p.fill("NQNs of hosts", hostA)
			p.has("1 host can connect after the last call.")
			p.shownCalls("Calls")
		}},
		{"withdraw", "exports", rows, func() {
			row("registry")()
			p.press("Withdraw…")
			p.has("is connected, and would lose the volume")
		}},
		{"attach", "storage", rows, func() { p.press("Attach a disk") }},
		{"delete-store", "storage", rows, func() {
			row("nvme1n1")()
			p.press("Delete the lvstore")
			p.has("are lost: ")
		}},
	}
	const dialogs = 11 // the first of shots that is a dialog
	for _, user := range []string{"admin", "team"} {
		if user == "team" {
			p.press("admin")
			p.press("Sign out")
			p.signIn(user)
			p.has("I/O of your volumes")
			for i := 4; i < 8; i++ { // the team has one export and one disk
				shots[i].wait = `document.querySelectorAll(".body .row").length > 0`
			}
			shots[2].after, shots[5].after, shots[7].after = row("web"), row("web"), row("lvstore team")
			shots = shots[:10] // the audit log and the dialogs are the administrator's
		}
		p.inject(source)
		for i, s := range shots {
			for _, look := range []struct {
				name          string
				width, height int64
				dark          bool
			}{{"light", 1440, 900, false}, {"dark", 1440, 900, true}, {"phone", 390, 844, false}, {"phone-dark", 390, 844, true}} {
				if (i >= dialogs || user == "team" && i > 1) && look.dark != (look.width < 1000) {
					continue // light on a desk and dark on a phone are enough
				}
				name := "real-" + user + "-" + s.name + "-" + look.name
				p.look(look.width, look.height, look.dark)
				p.show("none")
				p.show(s.hash)
				p.until(s.wait)
				if s.after != nil {
					s.after()
				}
				p.shoot(filepath.Join(folder, name+".png"))
				assert.Empty(t, eval[[]string](p, findings), name)
				assert.True(t, eval[bool](p, `document.documentElement.scrollWidth <= innerWidth`), "%s: nothing is cut off", name)
				eval[chromedp.Void](p, `document.querySelector("dialog [aria-label=Close]")?.click()`)
			}
		}
	}
}

// The page withdraws an export from a host that is really connected only after its user has typed
// the volume's name. The host's commands then fail, and the volume and other hosts' exports remain.
// An export whose host has disconnected is withdrawn without this confirmation.
func TestWithdrawFromRealHosts(t *testing.T) {
	if !realtarget.Given() {
		t.Skipf("set %s to the socket of an empty spdk_tgt", realtarget.Variable)
	}
	w := exportTestbed(t)
	w.calls.unchanged()
	w.fillDisks(t)
	connect := func(volume string) *initiator.Device {
		device, err := initiator.Connect(initiator.Target{Address: "127.0.0.1:4420", NQN: busyVolumes[volume], HostNQN: hostA})
		require.NoError(t, err, volume)
		t.Cleanup(func() { _ = device.Close() })
		return device
	}
	block := make([]byte, 4096)
	copy(block, "written before the export was withdrawn")
	victim, other := connect("ssd/registry"), connect("ssd/postgres-0")
	_, err := victim.WriteAt(block, 0)
	require.NoError(t, err)
	p := newPageAt(t, w)
	p.signIn("admin")
	p.openPanel("exports", busyVolumes["ssd/registry"])
	p.press("Withdraw…")
	p.has("Host " + hostA + " is connected, and would lose the volume")
	p.until(submits + `.disabled`)
	_, err = victim.ReadAt(block, 0)
	require.NoError(t, err, "the dialog alone must not change anything")
	p.fill("To confirm, type registry", "registry")
	p.submit()
	p.has("Withdrew the export of ssd/registry")
	_, err = victim.WriteAt(block, 0)
	require.Error(t, err)
	_, err = other.WriteAt(block, 0)
	require.NoError(t, err)

	require.NoError(t, other.Close())
	p.openPanel("exports", busyVolumes["ssd/postgres-0"])
	p.press("Withdraw…")
	p.has("No host that would lose the volume is connected.")
	p.submit()
	p.has("Withdrew the export of ssd/postgres-0")
	var left []string
	for _, e := range w.exports(t) {
		left = append(left, strings.Fields(e)[0])
	}
	require.ElementsMatch(t, []string{busyVolumes["ssd/postgres-1"], busyVolumes["team/web"]}, left)

	// the volume can be exported again, and still contains its data
	p.openPanel("volumes", "registry")
	p.press("Export…")
	p.fill("NQN", busyVolumes["ssd/registry"])
	p.fill("NQNs of hosts", hostA)
	p.has("1 host can connect after the last call.")
	p.submit()
	p.has("ssd/registry is exported as " + busyVolumes["ssd/registry"])
	read := make([]byte, len(block))
	_, err = connect("ssd/registry").ReadAt(read, 0)
	require.NoError(t, err)
	require.Equal(t, block, read)
}
