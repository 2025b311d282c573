package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplorerMakesACall(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin")
	p.show("explorer")
	p.fill("Search methods and parameters", "bdev_get_bdevs")
	p.until(`document.querySelector(".methods a .mono")?.innerText === "bdev_get_bdevs"`)
	eval[chromedp.Void](p, `document.querySelector(".methods a").click()`)
	p.until(described)
	volume := "ssd/vol-00012"
	if p.testbed != shared {
		volume = "lvs0/db"
	}
	p.fill("name", volume)
	p.press("Call")
	p.until(`!!document.querySelector(".answers .tree")`)
	assert.Contains(t, eval[string](p, `document.querySelector(".answers").innerText`), "Logical Volume")
	p.press("Table")
	p.until(`document.querySelector(".answers td")?.innerText.length === 36`)
	for tab, part := range map[string]string{
		"JSON": `"params": {"name": "` + volume + `"}`, "curl": "curl --cacert tls.crt --user 'admin'", "spdk-proxy": `'name:="` + volume + `"'`,
		"rpc.py": "scripts/rpc.py -s /run/spdk-proxy-rpc.sock bdev_get_bdevs --name " + volume, "Go": `spdk.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{`,
	} {
		p.press(tab)
		p.until(`[...document.querySelectorAll("pre")].some((e) => e.innerText.includes(` + "`" + part + "`" + `))`)
	}
}

// The list contains the methods of the target's build and those of the proxy. A link to any other
// method opens that method's page with a note.
func TestExplorerListsTheTargetsMethods(t *testing.T) {
	p := newPageAt(t, realOrSharedTestbed(t))
	p.signIn("admin")
	p.show("explorer")
	p.has("The target was built without ")
	listed := eval[[]string](p, `[...document.querySelectorAll(".methods a .mono")].map((e) => e.innerText)`)
	assert.Contains(t, listed, "bdev_lvol_create")
	assert.Contains(t, listed, "spdkgate_lvol_snapshot")
	assert.NotContains(t, listed, "bdev_rbd_create")
	assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll(".methods a .mono")].filter((e) => [...e.childNodes].some((part) => {
		const range = document.createRange();
		range.selectNodeContents(part);
		return part.nodeType === Node.TEXT_NODE && range.getClientRects().length > 1;
	})).map((e) => e.innerText)`), "names are wrapped only after underscores")
	text, err := p.testbed.target.call("rpc_get_methods", object{"include_aliases": true})
	require.NoError(t, err)
	var built []string
	require.NoError(t, json.Unmarshal(text, &built))
	for _, name := range listed {
		assert.True(t, slices.Contains(built, name) || strings.HasPrefix(name, "spdkgate_"), name)
	}
	p.show("explorer?method=bdev_rbd_create")
	p.has("The target was built without this method.")
	p.show("explorer?method=bdev_lvol_create")
	p.until(described)
	assert.NotContains(t, eval[string](p, `document.querySelector(".method").innerText`), "built without")
}

// The rpc.py tab shows an rpc.py command if a command can make the same call. Otherwise, it shows a
// program that makes the call.
func TestExplorerShowsRPCPyCommands(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	const start = "scripts/rpc.py -s /run/spdk-proxy-rpc.sock "
	const program = "by the client of rpc.py, which has other options\nPYTHONPATH=python python3 - <<'END'\n"
	for _, c := range []struct{ method, params, want string }{
		{"bdev_wait_for_examine", "", start + "bdev_wait_for_examine"},
		{"nvmf_subsystem_add_host", `{"nqn": "nqn.2026-01.example:a", "host": "nqn.2026-01.example:h"}`, start + "nvmf_subsystem_add_host nqn.2026-01.example:a nqn.2026-01.example:h"},
		{"bdev_malloc_create", `{"name": "m 0", "num_blocks": 131072, "block_size": 512}`, start + "bdev_malloc_create 64 512 --name 'm 0'"},
		{"nvmf_subsystem_allow_any_host", `{"nqn": "a", "allow_any_host": false}`, start + "nvmf_subsystem_allow_any_host a --no-allow-any-host"},
		{"nvmf_create_transport", `{"trtype": "TCP", "c2h_success": false, "zcopy": true, "no_srq": false}`, start + "nvmf_create_transport --trtype TCP --zcopy --c2h-success"},
		{"nvmf_subsystem_add_listener", `{"nqn": "a", "listen_address": {"trtype": "TCP", "traddr": "192.0.2.1", "trsvcid": "4420"}, "secure_channel": true}`, start + "nvmf_subsystem_add_listener a \\\n  --traddr 192.0.2.1 \\\n  --trsvcid 4420 \\\n  --trtype TCP \\\n  --secure-channel"},
		{"bdev_raid_create", `{"name": "r", "raid_level": "raid1", "base_bdevs": ["a", "b"]}`, start + "bdev_raid_create --name r --raid-level raid1 --base-bdevs 'a b'"},
		{"iscsi_create_portal_group", `{"tag": 1, "portals": [{"host": "192.0.2.1", "port": "3260"}]}`, start + "iscsi_create_portal_group 1 192.0.2.1:3260"},
		{"bdev_get_bdevs", `{"name": "it's $HOME"}`, start + `bdev_get_bdevs --name 'it'\''s $HOME'`},
		{"bdev_get_bdevs", `{"name": "--help"}`, start + "bdev_get_bdevs --name=--help"},
		// rpc.py does not support the method
		{"nvmf_get_targets", "", program},
		// rpc.py expects MiB
		{"bdev_malloc_create", `{"num_blocks": 100, "block_size": 512}`, program},
		// rpc.py splits the item
		{"bdev_raid_create", `{"name": "r", "raid_level": "raid1", "base_bdevs": ["a b"]}`, program},
		// rpc.py adds parameters
		{"bdev_nvme_set_options", `{"timeout_us": 1000}`, program},
		// rpc.py parses it as an option
		{"nvmf_subsystem_add_ns", `{"nqn": "a", "namespace": {"bdev_name": "-b"}}`, program},
		// the terminal would interpret it
		{"bdev_get_bdevs", `{"name": "a\u001bb"}`, program},
		// arguments are visible in the list of processes
		{"iscsi_auth_group_add_secret", `{"tag": 1, "user": "u", "secret": "s"}`, "every user of that host can read arguments"},
	} {
		p.show("explorer?method=" + c.method)
		p.until(`document.querySelector(".method h2")?.innerText === "` + c.method + `"`)
		if c.params != "" {
			p.press("As JSON")
			p.fill("Parameters as JSON", c.params)
		}
		p.press("rpc.py")
		want, err := json.Marshal(c.want)
		require.NoError(t, err)
		p.until(`document.querySelector("pre[aria-label='rpc.py'], [aria-label='rpc.py'] pre")?.innerText.includes(` + string(want) + `)`)
	}
}

// Every user of a host can read the arguments of its processes, so secrets are read from a file or
// from standard input.
func TestExplorerPutsNoSecretsInArguments(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	const note = ", because every user of this host can read arguments.\n"
	for _, c := range []struct{ method, params, tab, want string }{
		{"iscsi_auth_group_add_secret", `{"tag": 1, "user": "u", "secret": "s3cret"}`, "spdk-proxy", "# secret.txt has the secret in its first line" + note},
		{"iscsi_auth_group_add_secret", `{"tag": 1, "user": "u", "secret": "s3cret"}`, "spdk-proxy", "iscsi_auth_group_add_secret \\\n  'tag:=1' \\\n  'user:=\"u\"' \\\n  secret=@secret.txt"},
		{"iscsi_create_auth_group", `{"tag": 1, "secrets": [{"user": "u", "secret": "s3cret"}]}`, "spdk-proxy", "# secrets.json has secrets as JSON" + note},
		{"iscsi_create_auth_group", `{"tag": 1, "secrets": [{"user": "u", "secret": "s3cret"}]}`, "spdk-proxy", "'tag:=1' \\\n  secrets:=@secrets.json"},
		// spdk-proxy refuses secrets in arguments
		{"iscsi_create_auth_group", `{"tag": 1, "secrets": []}`, "spdk-proxy", "'tag:=1' \\\n  secrets:=@secrets.json"},
		{"bdev_rbd_create", `{"pool_name": "p", "rbd_name": "r", "block_size": 512, "config": {"key": "s3cret"}}`, "spdk-proxy", "config:=@config.json"},
		{"iscsi_create_auth_group", `{"tag": 1, "secrets": [{"user": "u", "secret": "s3cret"}]}`, "curl", "-d @- <<'END'\n{\"jsonrpc\": \"2.0\", "},
	} {
		p.show("explorer?method=" + c.method)
		p.until(`document.querySelector(".method h2")?.innerText === "` + c.method + `"`)
		p.press("As JSON")
		p.fill("Parameters as JSON", c.params)
		p.press(c.tab)
		want, err := json.Marshal(c.want)
		require.NoError(t, err)
		shown := `(document.querySelector("pre[aria-label='` + c.tab + `'], [aria-label='` + c.tab + `'] pre")?.innerText ?? "")`
		p.until(shown + `.includes(` + string(want) + `)`)
		if c.tab == "spdk-proxy" {
			assert.NotContains(t, eval[string](p, shown), "s3cret")
		}
	}
}

// The commands on the page make the calls that the page shows.
func TestExplorerCommandsMakeTheShownCalls(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	dir := t.TempDir()
	certificate, err := os.ReadFile(filepath.Join(p.testbed.dir, "tls.crt"))
	require.NoError(t, err)
	for name, text := range map[string]string{"tls.crt": string(certificate), "secrets.json": `[{"user": "u", "secret": "s3cret"}]`, "secret.txt": "s3cret\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Cleanup(func() {
		for _, tag := range []int{71, 72} {
			_, err := p.testbed.target.call("iscsi_delete_auth_group", object{"tag": tag})
			assert.NoError(t, err)
		}
	})
	for _, c := range []struct{ method, params, tab, prints string }{
		{"bdev_get_bdevs", `{"name": "ssd/vol-00012"}`, "spdk-proxy", "Logical Volume"},
		{"bdev_get_bdevs", `{"name": "ssd/vol-00012"}`, "curl", "Logical Volume"},
		{"iscsi_create_auth_group", `{"tag": 71, "secrets": [{"user": "u", "secret": "s3cret"}]}`, "spdk-proxy", "true"},
		{"iscsi_create_auth_group", `{"tag": 72, "secrets": [{"user": "u", "secret": "s3cret"}]}`, "curl", `"result":true`},
		{"iscsi_auth_group_add_secret", `{"tag": 71, "user": "v", "secret": "s3cret"}`, "spdk-proxy", "true"},
	} {
		p.show("explorer?method=" + c.method)
		p.until(`document.querySelector(".method h2")?.innerText === "` + c.method + `"`)
		p.press("As JSON")
		p.fill("Parameters as JSON", c.params)

		p.press(c.tab)
		shown := eval[string](p, `document.querySelector("pre[aria-label='`+c.tab+`'], [aria-label='`+c.tab+`'] pre").innerText`)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.Replace(shown, "curl ", "curl -sS ", 1))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+p.testbed.dir+":"+os.Getenv("PATH"), "SPDK_PROXY_PASSWORD="+password)
		if c.tab == "curl" { // otherwise, curl would prompt for the password
			cmd.Args[2] = strings.Replace(cmd.Args[2], "--user 'admin'", "--user 'admin:"+password+"'", 1)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", shown, out)
		assert.Contains(t, string(out), c.prints, shown)
	}
}

// The page rejects a value that the schema does not allow, and sends nothing.
func TestExplorerRejectsInvalidValues(t *testing.T) {
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

// Parameters can be written as JSON, which is checked in the same way as the form. Numbers keep all
// their digits.
func TestExplorerAcceptsJSON(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("explorer?method=bdev_lvol_create")
	p.until(described)
	p.fill("lvol_name", "by-json")
	p.press("As JSON")
	p.until(`document.querySelector("textarea.params")?.value === '{\n  "lvol_name": "by-json"\n}'`)
	for text, problem := range map[string]string{
		`{"lvol_name": `: "This is not a JSON object", `[1]`: "This is not a JSON object", `{"lvol_name": 4}`: "lvol_name: Give a text, in quotes",
		`{"size_in_mib": "4"}`: "size_in_mib: Give a number, without quotes", `{"size_in_mib": -1}`: "size_in_mib: At least 0", `{"lvol_nam": "v"}`: "lvol_nam: There is nothing of this name here",
		`{"thin_provision": "yes"}`: "thin_provision: Give true or false", `{"lvol_name": "v", "size_in_mib": 4}`: "Give exactly one of uuid, lvs_name",
	} {
		p.fill("Parameters as JSON", text)
		p.until(`document.querySelector(".problems").innerText.includes(` + "`" + problem + "`" + `)`)
	}
	p.fill("Parameters as JSON", `{"lvol_nam": "v"}`)
	// the form would lose the name
	p.until(`[...document.querySelectorAll("button")].some((b) => b.innerText === "As form" && b.disabled)`)
	p.fill("Parameters as JSON", `{"size_in_mib": 18446744073709551616}`)
	p.has("At most 17592186044415")
	p.press("Call…")
	assert.False(t, eval[bool](p, `!!document.querySelector("dialog[open]")`), "a call with problems is not made")
	p.fill("Parameters as JSON", `{"lvs_name": "scratch", "thin_provision": true, "size_in_mib": 4, "lvol_name": "by-json"}`)
	p.until(`document.querySelector(".problems").innerText === ""`)
	p.press("As form")
	p.until(`[...document.querySelectorAll(".entry input")].some((i) => i.value === "by-json")`)
	p.press("Call…")
	p.press("Make the call")
	p.until(`!!document.querySelector(".answers .tree")`)
	_, err := p.testbed.target.call("bdev_lvol_delete", object{"name": "scratch/by-json"})
	require.NoError(t, err)
}

func TestExplorerSuggestsNames(t *testing.T) {
	offered := func(p *page, method, field, typed string) string {
		p.show("explorer?method=" + method)
		p.until(`document.querySelector(".method h2")?.innerText === "` + method + `"`)
		p.fill(field, typed)
		return `[...document.querySelectorAll(".entry datalist option")].map((o) => o.value)`
	}
	p := newPage(t)
	p.signIn("admin")
	p.until(offered(p, "bdev_lvol_delete", "name", "vol-00080") + `.join() === "ssd/vol-00080,ssd/vol-00080-daily-1,ssd/vol-00080-daily-2,ssd/vol-00080-daily-3,ssd/vol-00080-test"`)
	p.until(offered(p, "bdev_get_bdevs", "name", "nvme") + `.join() === "nvme0n1,nvme1n1,nvme2n1,nvme3n1"`)
	p.until(offered(p, "bdev_lvol_create", "lvs_name", "SCRATCH") + `.join() === "scratch"`)
	p.until(offered(p, "nvmf_delete_subsystem", "nqn", "server-007") + `.join() === "nqn.2026-01.example.storage:server-007"`)
	tenant := newPage(t)
	tenant.signIn("team")
	tenant.until(offered(tenant, "bdev_lvol_delete", "name", "-") + `.length === 20`)
	tenant.until(`[...document.querySelectorAll(".entry datalist option")].every((o) => o.value.startsWith("team/"))`)
}

func TestExplorerShowsWhyACallIsRefused(t *testing.T) {
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
	_, err := p.testbed.target.call("bdev_lvol_delete", object{"name": "scratch/permitted"})
	require.NoError(t, err)
	lvols, err := p.testbed.target.call("bdev_lvol_get_lvols", object{"lvs_name": "ssd"})
	require.NoError(t, err)
	assert.NotContains(t, string(lvols), "refused")
}

func TestDestructiveCallAsksForTheObjectsName(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	_, err := p.testbed.target.call("bdev_lvol_create", object{"lvol_name": "doomed", "size_in_mib": 4, "lvs_name": "scratch"})
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

func TestAccessPageExplainsDecisions(t *testing.T) {
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
