package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

const (
	hostPrefix = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-"
	hostA      = hostPrefix + "000000000000" // the host connected to server-000
	hostB      = hostPrefix + "000000000001"
	serverNQN  = "nqn.2026-01.example.storage:server-000"
	teamNQN    = "nqn.2024-01.com.example.team:"
)

const exportConfiguration = `
listen: "%[1]s"
tls: {self_signed_dir: %[2]s}
target: {socket: %[2]s/busy.sock, keys: {dir: %[2]s/keys}}
users:
  - {name: admin, password_hash: "%[3]s", roles: [admin]}
  - {name: viewer, password_hash: "%[3]s", roles: [read-only]}
  - {name: team, password_hash: "%[3]s", roles: [csi-controller], tenant: team}
  - {name: lead, password_hash: "%[3]s", roles: [csi-controller, read-only], tenant: team}
  - {name: helpless, password_hash: "%[3]s", roles: [no-listeners]}
roles:
  no-listeners:
    extends: [csi-controller]
    deny: [nvmf_subsystem_add_listener, nvmf_subsystem_remove_host]
tenants:
  team: {lvstores: [team], nqn_prefixes: ["nqn.2024-01.com.example.team:"], hosts: ["` + hostPrefix + `*"], addresses: ["127.0.0.1:4421"], key_prefixes: [team-]}
log: {format: json}
`

// exportTestbed creates a separate testbed. Its target has the volumes lvs0/db and team/web, and a
// listener at 127.0.0.1:4420. With SPDK_SOCK and without arguments, the target is a real one.
func exportTestbed(t *testing.T, targetArgs ...string) *testbed {
	t.Helper()
	chromium(t)
	dir, err := os.MkdirTemp("", "exports")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &testbed{dir: dir, log: &logFile{}}
	require.NoError(t, build(dir))
	socket := filepath.Join(dir, "spdk.sock")
	if realtarget.Given() && len(targetArgs) == 0 {
		socket = realtarget.Socket(t)
	} else {
		require.NoError(t, w.start(command(dir, filepath.Join(dir, "spdk-sim"), append([]string{"--socket", socket, "--no-auto-examine"}, targetArgs...)...)))
	}
	t.Cleanup(w.close)
	w.target, err = dial(socket)
	require.NoError(t, err)
	stop, err := relay(filepath.Join(dir, "busy.sock"), socket, &w.calls)
	require.NoError(t, err)
	w.stops = append(w.stops, stop)
	const other = "nqn.2026-01.example.storage:other"
	for i, store := range []struct{ name, volume string }{{"lvs0", "db"}, {"team", "web"}} {
		disk := fmt.Sprintf("disk%d", i)
		w.call(t, "bdev_malloc_create", object{"name": disk, "num_blocks": 1 << 13, "block_size": 4096})
		w.call(t, "bdev_lvol_create_lvstore", object{"bdev_name": disk, "lvs_name": store.name, "cluster_sz": 1 << 20})
		w.call(t, "bdev_lvol_create", object{"lvol_name": store.volume, "size_in_mib": 16, "lvs_name": store.name, "thin_provision": true})
	}
	// a real target keeps its transport between tests
	if string(w.call(t, "nvmf_get_transports", nil)) == "[]" {
		w.call(t, "nvmf_create_transport", object{"trtype": "TCP"})
	}
	w.call(t, "nvmf_create_subsystem", object{"nqn": other, "serial_number": "other"})
	w.call(t, "nvmf_subsystem_add_host", object{"nqn": other, "host": hostB})
	w.call(t, "nvmf_subsystem_add_listener", object{"nqn": other, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	proxy := filepath.Join(dir, "spdk-proxy")
	hash := command(dir, proxy, "hash-password")
	hash.Stdin, hash.Stdout = strings.NewReader(password+"\n"), nil
	out, err := hash.Output()
	require.NoError(t, err)
	address, err := freeAddress()
	require.NoError(t, err)
	require.NoError(t, w.serve(proxy, dir, address, fmt.Sprintf(exportConfiguration, address, dir, strings.TrimSpace(string(out)))))
	return w
}

// realOrSharedTestbed returns a testbed with a real target if SPDK_SOCK is set, and otherwise the
// testbed that all tests share.
func realOrSharedTestbed(t *testing.T) *testbed {
	t.Helper()
	if realtarget.Given() {
		return exportTestbed(t)
	}
	return sharedTestbed(t)
}

func (w *testbed) call(t *testing.T, method string, params object) json.RawMessage {
	t.Helper()
	result, err := w.target.call(method, params)
	require.NoError(t, err)
	return result
}

// release returns the target's release, such as v26.05.
func (w *testbed) release(t *testing.T) string {
	t.Helper()
	var version struct {
		Version string `json:"version"`
	}
	require.NoError(t, json.Unmarshal(w.call(t, "spdk_get_version", nil), &version))
	return strings.Fields(version.Version)[1]
}

type subsystem struct {
	NQN    string `json:"nqn"`
	Serial string `json:"serial_number"`
	Any    bool   `json:"allow_any_host"`
	Hosts  []struct {
		NQN string `json:"nqn"`
		Key string `json:"dhchap_key"`
	} `json:"hosts"`
	Listen []struct {
		Traddr  string `json:"traddr"`
		Trsvcid string `json:"trsvcid"`
	} `json:"listen_addresses"`
	Namespaces []struct {
		ANA *int `json:"anagrpid"`
	} `json:"namespaces"`
}

// String returns the parts of an export that the tests compare.
func (s subsystem) String() string {
	var parts []string // SPDK does not list hosts and listeners in a fixed order
	for _, h := range s.Hosts {
		host := strings.TrimPrefix(h.NQN, hostPrefix)
		if h.Key != "" {
			host += "=" + h.Key
		}
		parts = append(parts, host)
	}
	for _, l := range s.Listen {
		parts = append(parts, l.Traddr+":"+l.Trsvcid)
	}
	slices.Sort(parts)
	if s.Any {
		parts = append([]string{"any"}, parts...)
	}
	for _, n := range s.Namespaces {
		parts = append(parts, fmt.Sprintf("ana:%t", n.ANA != nil))
	}
	return strings.Join(append([]string{s.NQN}, parts...), " ")
}

// exports lists the target's subsystems except those that existed initially.
func (w *testbed) exports(t *testing.T) (list []string) {
	t.Helper()
	var all []subsystem
	require.NoError(t, json.Unmarshal(w.call(t, "nvmf_get_subsystems", nil), &all))
	for _, s := range all {
		if s.NQN != "nqn.2026-01.example.storage:other" && s.NQN != "nqn.2014-08.org.nvmexpress.discovery" {
			list = append(list, s.String())
		}
	}
	return list
}

func (w *testbed) uuid(t *testing.T, volume string) string {
	t.Helper()
	var bdevs []struct {
		UUID string `json:"uuid"`
	}
	require.NoError(t, json.Unmarshal(w.call(t, "bdev_get_bdevs", object{"name": volume}), &bdevs))
	return bdevs[0].UUID
}

// openPanel opens the details of a volume or of an export.
func (p *page) openPanel(list, name string) {
	p.t.Helper()
	p.show("none")
	p.show(list)
	// the target may have changed
	const again = `document.querySelector("[aria-label^='Read again. Read at']")`
	p.until(`!!` + again)
	eval[chromedp.Void](p, again+`.click(); null`)
	quoted, _ := json.Marshal(name)
	row := `[...document.querySelectorAll(".body .row")].find((r) => r.innerText.includes(` + string(quoted) + `) || r.querySelector("[title=" + JSON.stringify(` + string(quoted) + `) + "]"))`
	p.until(`!!` + row)
	eval[chromedp.Void](p, row+`.click(); null`)
	p.until(`!!document.querySelector(".panel")`)
}

// choose selects a checkbox or radio button, as a user does.
func (p *page) choose(label string) {
	p.t.Helper()
	quoted, _ := json.Marshal(label)
	find := `[...document.querySelectorAll("dialog .check")].find((l) => l.innerText.trim().startsWith(` + string(quoted) + `))`
	p.until(`!!` + find)
	eval[chromedp.Void](p, find+`.querySelector("input").click(); null`)
}

const noDialog = `!document.querySelector("dialog[open]")`

// shownCalls returns the text of a tab of the dialog's calls.
func (p *page) shownCalls(tab string) string {
	p.t.Helper()
	p.until(`!!document.querySelector("dialog details.call")`)
	eval[chromedp.Void](p, `document.querySelector("dialog details.call").open = true; null`)
	p.press(tab)
	shown := `document.querySelector("dialog [role=tabpanel] pre[aria-label='` + tab + `']")`
	p.until(`!!` + shown)
	return eval[string](p, shown+`.innerText`)
}

// sameInTerminal checks that the command that is shown makes the same calls as the dialog.
func (p *page) sameInTerminal(user string) {
	p.t.Helper()
	calls, line := p.shownCalls("Calls"), p.shownCalls("spdk-proxy")
	shell := command(p.testbed.dir, "sh", "-c", line+" --dry-run")
	shell.Env = append(os.Environ(), "PATH="+p.testbed.dir+":"+os.Getenv("PATH"), "SPDK_PROXY_URL="+p.testbed.url, "SPDK_PROXY_USER="+user, "SPDK_PROXY_CA="+filepath.Join(p.testbed.dir, "tls.crt"), "SPDK_PROXY_PASSWORD="+password)
	shell.Stdout = nil
	out, err := shell.Output()
	require.NoError(p.t, err, line)
	_, steps, _ := strings.Cut(string(out), "\n")
	require.Equal(p.t, strings.ReplaceAll(strings.TrimRight(steps, "\n"), "  ", ""), calls, "the dialog and the terminal make the same calls")
}
