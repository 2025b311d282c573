package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/exports"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	exportHost  = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000001"
	otherHost   = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000002"
	exportKey   = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	tenantNQNs  = "nqn.2024-01.com.example.team:"
	tenantParts = "tenants: {team: {lvstores: [lvs0], nqn_prefixes: ['" + tenantNQNs + "'], addresses: ['127.0.0.1:4420'], hosts: ['" + exportHost + "'], quota: {subsystems: 1}}}\nroles: {careful"
)

// An export with a key is created and deleted, both through a proxy and directly at the target's
// socket. Each operation is preceded by a dry run.
func TestExportsAreCreatedAndDeleted(t *testing.T) {
	sim := target(t)
	stored(t, sim)
	path := writeConfig(t, sim.Socket(), "")
	dir := t.TempDir()
	change(t, path, "socket: "+sim.Socket(), "socket: "+sim.Socket()+", keys: {dir: "+filepath.Join(dir, "keys")+"}")
	d := start(t, nil, "serve", "--config", path)
	at := []string{"--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt")}
	do := func(args ...string) outcome { return run(t, "", append(args, at...)...) }
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte(exportKey+"\n"), 0o600))
	with := []string{"export", "lvs0/v0", "--host", exportHost, "--listen", "127.0.0.1:4420", "--dhchap-key", "node1=@" + secret}

	require.NoError(t, os.Chmod(secret, 0o644))
	o := do(with...)
	assert.Equal(t, exitUsage, o.code, "a file that others can read")
	assert.Contains(t, o.stderr, "--dhchap-key node1: every user of this host may access "+secret+", so its secret may be known: put another secret into a file that only you can access (umask 077)")
	require.NoError(t, os.Chmod(secret, 0o640))
	o = do(append(with, "--dry-run")...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "these calls would be made (dry run):\n  spdkgate_key_add {\"name\":\"node1\",\"secret\":\"[redacted]\"}\n  nvmf_create_transport {\"trtype\":\"TCP\"}\n  nvmf_create_subsystem ")
	assert.NotContains(t, o.stdout+o.stderr, exportKey)
	assert.Contains(t, do("exports").stdout, "the target has no export over NVMe-oF that this user may see\n", "nothing was made")
	assert.Equal(t, "[]\n", do("exports", "-o", "json").stdout)

	o = do(with...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, "done: nvmf_subsystem_add_listener\n")
	assert.Regexp(t, `(?m)^  nvme connect -t tcp -a 127\.0\.0\.1 -s 4420 -n nqn\.2014-08\.org\.nvmexpress:uuid:[0-9a-f-]{36}$`, o.stdout)
	assert.Contains(t, o.stdout, "/etc/nvme/hostnqn on the host contains: "+exportHost)
	assert.Contains(t, o.stdout, "the host authenticates with its key")
	o = do(with[:6]...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "nothing to do: lvs0/v0 ")
	assert.Contains(t, o.stdout, "the host authenticates with its key", "the export has the key already")
	assert.Contains(t, do("exports", "--connected").stdout, exportHost+" (key node1)  tcp 127.0.0.1:4420  -\n")
	var list []exports.Export
	require.NoError(t, json.Unmarshal([]byte(do("exports", "-o", "json").stdout), &list))
	require.Len(t, list, 1)
	assert.True(t, list[0].ANA)

	o = do("export", "lvs0/v0", "--host", otherHost)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "share the volume (--shared). Nothing was changed")
	require.NoError(t, sim.ConnectHost(list[0].NQN, exportHost))
	o = do("unexport", "lvs0/v0")
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "is connected")
	o = do("unexport", "lvs0/v0", "--disconnect", "--dry-run")
	assert.Contains(t, o.stdout, "these calls would be made (dry run):\n  nvmf_delete_subsystem")
	o = do("unexport", "lvs0/v0", "--disconnect")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, "warning: the target's keyring keeps these keys: node1.")
	assert.Equal(t, "[]\n", do("exports", "-o", "json").stdout)

	// If creating an export fails, the command removes the key that it has added.
	require.Zero(t, do("call", "spdkgate_key_remove", "name=node1").code)
	sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_add_host", Do: spdktest.Fail})
	o = do(with...)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "What this command had done was undone")
	assert.Equal(t, "[]\n", do("call", "keyring_get_keys").stdout)

	at = []string{"--socket", sim.Socket()}
	o = do("export", "lvs0/v0", "--any-host", "--listen", "127.0.0.1:4420")
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stderr, "warning: any host that reaches 127.0.0.1:4420 can connect")
	assert.Contains(t, do("exports").stdout, "any host")
	for _, wrong := range [][]string{
		{"export"}, {"export", "lvs0/v0"}, {"export", "lvs0/v0", "--host", "node1"}, {"export", "lvs0/v0", "--host", exportHost, "--listen", "node1:4420"},
		{"export", "lvs0/v0", "--host", exportHost, "--transport", "fc"}, {"export", "lvs0/v0", "--host", exportHost, "--dhchap-key", "k=" + exportKey},
		{"export", "lvs0/v0", "--host", exportHost, "--dhchap-key", exportKey},
		{"unexport"}, {"exports", "-o", "xml"},
	} {
		o := do(wrong...)
		assert.Equal(t, exitUsage, o.code, wrong)
		assert.NotContains(t, o.stderr, strings.Trim(exportKey, "=:"))
	}
	assert.Contains(t, run(t, "", "__complete", "export", "v", "--transport", "").stdout, "rdma")
}

// A tenant can export its volumes as far as its permissions allow. The error for a refused export
// lists these permissions.
func TestTenantCanExportItsVolumes(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{ExamineListed: true})
	require.NoError(t, err)
	defer func() { _ = sim.Close() }()
	stored(t, sim)
	path := writeConfig(t, sim.Socket(), "")
	change(t, path, "roles: [admin, careful]", "roles: [admin], tenant: team")
	change(t, path, "roles: {careful", tenantParts)
	d := start(t, nil, "serve", "--config", path)
	do := func(args ...string) outcome {
		return run(t, "", append(args, "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"))...)
	}
	require.Zero(t, run(t, "", "call", "--socket", sim.Socket(), "nvmf_create_transport", "trtype=TCP").code)
	require.Eventually(t, func() bool { // the proxy lists the lvstores every 2 s
		return strings.Contains(do("call", "bdev_lvol_get_lvols").stdout, "lvs0")
	}, time.Minute, 100*time.Millisecond)
	denied := func(says string, args ...string) {
		t.Helper()
		for _, args := range [][]string{args, append(args, "--dry-run")} {
			o := do(append([]string{"export", "lvs0/v0"}, args...)...)
			assert.Equal(t, exitDenied, o.code, o.stderr)
			assert.Contains(t, o.stderr, says)
			assert.Contains(t, o.stderr, "denied: this user may not make this call: ")
			assert.Contains(t, o.stderr, "(code -32003). Nothing was changed")
		}
		assert.Equal(t, "[]\n", do("exports", "-o", "json").stdout)
	}
	at := []string{"--listen", "127.0.0.1:4420"}
	denied("its NQNs begin with "+tenantNQNs, append(at, "--host", exportHost, "--nqn", "nqn.2016-06.io.spdk:v0")...)
	denied("its hosts are "+exportHost, append(at, "--host", otherHost, "--nqn", tenantNQNs)...)
	denied("its addresses are 127.0.0.1:4420", "--listen", "127.0.0.1:4421", "--host", exportHost, "--nqn", tenantNQNs)
	denied("tenants may not call nvmf_create_transport", "--listen", "127.0.0.1:4420", "--transport", "rdma", "--host", exportHost, "--nqn", tenantNQNs)
	denied("allow: [any-host]", append(at, "--any-host", "--nqn", tenantNQNs)...)
	o := do(append(at, "export", "lvs0/v0", "--host", exportHost)...) // the tenant's only prefix determines the NQN
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, do("exports").stdout, "lvs0/v0  "+tenantNQNs)
	require.Zero(t, do("call", "bdev_lvol_create", "lvs_name=lvs0", "lvol_name=v1", "size_in_mib=4").code)
	for _, dryRun := range []string{"--dry-run", "--dry-run=false"} {
		o = do(append(at, "export", "lvs0/v1", "--host", exportHost, "--nqn", tenantNQNs, dryRun)...)
		assert.Equal(t, exitFailed, o.code, dryRun)
		assert.Contains(t, o.stderr, "nvmf_create_subsystem: no space: tenant team: the quota is 1 subsystems")
	}
	require.Zero(t, do("unexport", "lvs0/v0").code)
	assert.Equal(t, "[]\n", do("exports", "-o", "json").stdout)
}
