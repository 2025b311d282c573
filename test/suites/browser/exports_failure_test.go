package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If a call fails, the dialog undoes the preceding calls and reports that it has done so. The
// failed call is also undone if it may have been executed.
func TestFailedExportIsUndone(t *testing.T) {
	for _, fault := range []string{"fail", "close", "close,executed"} {
		t.Run(fault, func(t *testing.T) {
			// skip the call made by exportTestbed
			w := exportTestbed(t, "--fault", "nvmf_subsystem_add_listener:"+fault+",skip=1")
			p := newPageAt(t, w)
			p.signIn("admin")
			p.openPanel("volumes", "db")
			p.press("Export…")
			p.fill("NQNs of hosts", hostA)
			p.submit()
			p.has("nvmf_subsystem_add_listener failed.")
			p.has("What this dialog had done was undone:")
			require.Empty(t, w.exports(t))
			p.press("Back")
			p.submit()
			p.has("lvs0/db is exported as ")
			require.Len(t, w.exports(t), 1)
		})
	}
}

// If a change fails, the export remains unchanged.
func TestFailedChangeOfExportIsUndone(t *testing.T) {
	w := exportTestbed(t, "--fault", "nvmf_subsystem_add_listener:fail,skip=2")
	p := newPageAt(t, w)
	p.signIn("admin")
	w.exported(t, true)
	before := w.exports(t)
	p.openPanel("exports", serverNQN)
	p.press("Add host…")
	p.fill("NQNs of hosts", hostB)
	p.choose("Share the volume")
	p.fill("Other addresses of the storage server", "127.0.0.1:4422")
	p.submit()
	p.has("nvmf_subsystem_add_listener failed.")
	p.has(`nvmf_subsystem_remove_host {"nqn":"` + serverNQN + `","host":"` + hostB + `"}`)
	require.Equal(t, before, w.exports(t))
}

// exported exports lvs0/db as serverNQN to hostA.
func (w *testbed) exported(t *testing.T, ana bool) {
	t.Helper()
	w.call(t, "nvmf_create_subsystem", object{"nqn": serverNQN, "serial_number": "S", "ana_reporting": ana})
	w.call(t, "nvmf_subsystem_add_ns", object{"nqn": serverNQN, "namespace": object{"bdev_name": "lvs0/db"}})
	w.call(t, "nvmf_subsystem_add_host", object{"nqn": serverNQN, "host": hostA})
	w.call(t, "nvmf_subsystem_add_listener", object{"nqn": serverNQN, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
}

// If the calls that undo an export also fail, the dialog lists these calls and the objects that are
// left.
func TestFailedUndoListsRemainingObjects(t *testing.T) {
	w := exportTestbed(t, "--fault", "nvmf_subsystem_add_listener:fail,skip=1", "--fault", "nvmf_delete_subsystem:fail=-16")
	p := newPageAt(t, w)
	p.signIn("admin")
	p.openPanel("volumes", "db")
	p.press("Export…")
	p.fill("NQN", serverNQN)
	p.fill("NQNs of hosts", hostA)
	p.submit()
	p.has("These calls, which undo what this dialog did, failed. Make them in the explorer:")
	p.has(`nvmf_delete_subsystem {"nqn":"` + serverNQN + `"}: The object is in use.`)
	assert.NotContains(t, eval[string](p, `document.querySelector("dialog").innerText`), "undone")
	require.Equal(t, []string{serverNQN + " 000000000000 ana:true"}, w.exports(t))
	p.press("Back")
	p.has("Change the export")
	p.submit()
	p.has("is exported as " + serverNQN)
	require.Equal(t, []string{serverNQN + " 000000000000 127.0.0.1:4420 ana:true"}, w.exports(t), "the same request completes the export")
}

// If the user leaves the page while calls are being made, a failure is still shown, and the calls
// are undone.
func TestFailureIsShownAfterLeaving(t *testing.T) {
	w := exportTestbed(t, "--fault", "nvmf_subsystem_add_listener:fail,skip=1")
	p := newPageAt(t, w)
	p.signIn("admin")
	p.openPanel("volumes", "db")
	p.press("Export…")
	p.fill("NQNs of hosts", hostA)
	open := w.calls.shut("nvmf_subsystem_add_listener")
	t.Cleanup(open)
	p.submit()
	p.has("Working…")
	p.keys("\x1b\x1b\x1b") // Escape does not close the dialog while calls are being made
	p.until(`!!document.querySelector("dialog[open]")`)
	p.show("overview")
	p.until(noDialog)
	open()
	p.has("nvmf_subsystem_add_listener failed: ")
	p.has("What had been done was undone.")
	require.Empty(t, w.exports(t))
}

// The dialog makes only the calls that it has shown, even if the target changes while the dialog is
// open.
func TestChangedTargetIsShownFirst(t *testing.T) {
	w := exportTestbed(t)
	p := newPageAt(t, w)
	p.signIn("admin")
	p.openPanel("volumes", "db")
	p.press("Export…")
	p.fill("NQNs of hosts", hostA)
	p.has("1 host can connect")
	w.exported(t, true)
	p.submit()
	p.has("The target has changed meanwhile, so other calls are needed. Nothing was changed")
	require.Equal(t, []string{serverNQN + " 000000000000 127.0.0.1:4420 ana:true"}, w.exports(t))
	p.has("Nothing is to be done: the target is in this state already.")
	p.until(submits + `.disabled`)
	p.press("Cancel")
}

// If a host connects after the dialog has been opened, the host is disconnected only after the user
// has typed a name.
func TestDisconnectingANewHostNeedsConfirmation(t *testing.T) {
	w := exportTestbed(t)
	p := newPageAt(t, w)
	p.signIn("admin")
	w.exported(t, true)
	before := w.exports(t)
	w.calls.connect(false)
	for _, button := range []string{"Withdraw…", "Remove host " + hostA} {
		p.openPanel("exports", serverNQN)
		p.press(button)
		p.has("No host that would lose the volume is connected.")
		w.calls.connect(true)
		p.submit()
		p.has("Host " + hostA + " has connected meanwhile. Nothing was changed")
		p.until(submits + `.disabled`)
		require.Equal(t, before, w.exports(t))
		p.press("Cancel")
		w.calls.connect(false)
	}
	p.press("Withdraw…")
	p.has("No host that would lose the volume is connected.")
	w.call(t, "nvmf_delete_subsystem", object{"nqn": serverNQN})
	p.submit()
	p.has("lvs0/db is no longer exported over NVMe-oF. Nothing was changed")
}

// The dialog reports in advance which operations would fail later, and which calls the user's roles
// do not allow.
func TestExportPredictsFailures(t *testing.T) {
	w := exportTestbed(t)
	p := newPageAt(t, w)
	p.signIn("admin")
	w.exported(t, false)
	p.openPanel("exports", serverNQN)
	p.has("No ANA reporting: no snapshot of the volume is possible while a host is connected.")
	p.openPanel("volumes", "db")
	p.has("No ANA reporting: no snapshot of this volume is possible while a host is connected.")
	p.press("Snapshot")
	p.has("exports the volume without ANA reporting. While a host is connected, the snapshot is refused.")
	p.press("Cancel")
	p.press("Change export…")
	p.has("without ANA reporting, which SPDK cannot add: no snapshot would be possible while a host is connected.")
	p.until(submits + `.disabled`)
	p.press("Cancel")
	w.call(t, "nvmf_delete_subsystem", object{"nqn": serverNQN})

	w.call(t, "nvmf_create_subsystem", object{"nqn": serverNQN, "serial_number": "another's"})
	p.openPanel("volumes", "db")
	p.press("Export…")
	p.fill("NQN", serverNQN)
	p.has("There is a subsystem " + serverNQN + " that does not export lvs0/db")
	p.press("Cancel")
	p.openPanel("exports", serverNQN)
	p.has("It exports nothing, as an interrupted export leaves it")
	w.call(t, "nvmf_delete_subsystem", object{"nqn": serverNQN})

	p.press("admin")
	p.press("Sign out")
	p.signIn("helpless")
	w.exported(t, true)
	p.openPanel("volumes", "db")
	eval[chromedp.Void](p, `new Promise((done) => setTimeout(done, 200))`)
	assert.False(t, eval[bool](p, `[...document.querySelectorAll(".panel button")].some((b) => /xport…$/.test(b.innerText))`), "a button appears only if the user may call its methods")
	p.openPanel("exports", serverNQN)
	p.press("Add host…")
	p.fill("NQNs of hosts", hostB)
	p.choose("Share the volume")
	p.fill("Other addresses of the storage server", "127.0.0.1:4422")
	p.has("Your roles do not permit nvmf_subsystem_add_listener.")
	p.has("Your roles do not permit nvmf_subsystem_remove_host")
	p.until(submits + `.disabled`)
}

// Exports of the CSI driver, and subsystems with several volumes, cannot be changed by accident.
func TestExportsOfOthersAreKept(t *testing.T) {
	w := exportTestbed(t)
	p := newPageAt(t, w)
	p.signIn("admin")
	nqn := "nqn.2020-04.io.spdk.csi:uuid:" + w.uuid(t, "lvs0/db")
	w.call(t, "nvmf_create_subsystem", object{"nqn": nqn, "serial_number": "S", "ana_reporting": true})
	w.call(t, "nvmf_subsystem_add_ns", object{"nqn": nqn, "namespace": object{"bdev_name": "lvs0/db"}})
	p.openPanel("exports", nqn)
	p.press("Withdraw…")
	p.has("which is a name of the CSI driver: Kubernetes decides which hosts use such a volume.")
	p.until(submits + `.disabled`)
	p.fill("To change an export of the CSI driver, type its NQN", nqn)
	p.has("if Kubernetes has a PersistentVolume for this volume, the driver changes the export, too")
	p.sameInTerminal("admin")
	p.press("Cancel")
	w.call(t, "nvmf_subsystem_add_ns", object{"nqn": nqn, "namespace": object{"bdev_name": "team/web"}})
	p.openPanel("exports", nqn)
	p.has("Each host reaches all 2 volumes, so a change concerns all of them.")
	p.has("lvs0/db, 16 MiB")
	p.has("team/web, 16 MiB")
	p.press("nvmf_subsystem_add_host")
	p.until(`document.querySelector(".method h2").innerText === "nvmf_subsystem_add_host"`)
	p.openPanel("volumes", "db")
	p.press("Change export…")
	p.fill("To change an export of the CSI driver, type its NQN", nqn)
	p.has("exports 2 bdevs, and its hosts reach all of them")
	require.Len(t, w.exports(t), 1)
	w.call(t, "iscsi_create_portal_group", object{"tag": 1, "portals": []object{{"host": "127.0.0.1", "port": "3260"}}})
	w.call(t, "iscsi_create_initiator_group", object{"tag": 1, "initiators": []string{"ANY"}, "netmasks": []string{"192.0.2.0/24"}})
	w.call(t, "nvmf_delete_subsystem", object{"nqn": nqn})
	w.call(t, "iscsi_create_target_node", object{
		"name": "iqn.2026-01.example:db", "alias_name": "db", "pg_ig_maps": []object{{"pg_tag": 1, "ig_tag": 1}},
		"luns": []object{{"bdev_name": "lvs0/db", "lun_id": 0}}, "queue_depth": 64, "disable_chap": true,
	})
	p.openPanel("volumes", "db")
	p.press("Export…")
	p.has("the iSCSI target iqn.2026-01.example:db offers lvs0/db already")
	p.until(submits + `.disabled`)
}

// The page does not tell a tenant that there is no listener or host, because the tenant does not
// see listeners and hosts that an administrator has chosen outside the tenant's configuration.
func TestTenantIsNotToldThatHiddenObjectsAreMissing(t *testing.T) {
	w, nqn := exportTestbed(t), teamNQN+"web"
	w.call(t, "nvmf_create_subsystem", object{"nqn": nqn, "serial_number": "web", "ana_reporting": true})
	w.call(t, "nvmf_subsystem_add_ns", object{"nqn": nqn, "namespace": object{"bdev_name": "team/web"}})
	w.call(t, "nvmf_subsystem_add_host", object{"nqn": nqn, "host": "nqn.2026-01.example.storage:host"})
	w.call(t, "nvmf_subsystem_add_listener", object{"nqn": nqn, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
	p := newPageAt(t, w)
	p.signIn("team")
	for _, list := range []string{"volumes", "exports"} {
		p.openPanel(list, map[string]string{"volumes": "web", "exports": nqn}[list])
		p.until(panelText + `.includes("none that you may see") && ` + panelText + `.includes("no host that you may see")`)
		assert.False(t, eval[bool](p, panelText+`.includes("no host can")`))
	}
	p.openPanel("volumes", "web")
	p.until(panelText + `.includes("Not shown: you are not permitted to call spdkgate_get_io_history")`)
}

// If the user may read the tenant's names, the page uses its prefix and lists its addresses.
func TestTenantsNamesAreUsedByDefault(t *testing.T) {
	w := exportTestbed(t)
	p, nqn := newPageAt(t, w), teamNQN+w.uuid(t, "team/web")
	p.signIn("lead")
	p.openPanel("volumes", "web")
	p.press("Export…")
	p.has("Empty for " + nqn + ". If the value ends with a colon, the volume's UUID follows. The NQNs of tenant team begin with " + teamNQN + ".")
	p.has("Addresses of tenant team: 127.0.0.1:4421.")
	p.fill("NQNs of hosts", hostA)
	p.has("name an address of tenant team: 127.0.0.1:4421")
	p.fill("Other addresses of the storage server", "127.0.0.1:4421")
	p.sameInTerminal("lead")
	p.submit()
	p.has("team/web is exported as " + nqn)
	require.Equal(t, []string{nqn + " 000000000000 127.0.0.1:4421 ana:true"}, w.exports(t))
}
