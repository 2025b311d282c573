package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// stored creates an lvstore with one volume on a target.
func stored(t testing.TB, sim *spdktest.Target) {
	socket := spdkrpc.NewSocket(sim.Socket())
	defer func() { _ = socket.Close() }()
	for _, c := range [][2]string{
		{"bdev_malloc_create", `{"name":"m0","num_blocks":16384,"block_size":4096}`},
		{"bdev_lvol_create_lvstore", `{"bdev_name":"m0","lvs_name":"lvs0"}`},
		{"bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v0","size_in_mib":8,"thin_provision":true}`},
	} {
		require.NoError(t, socket.Call(context.Background(), c[0], json.RawMessage(c[1]), nil))
	}
}

// through returns the flags that select a proxy for the target, with the user admin.
func through(t *testing.T, sim *spdktest.Target) []string {
	path := writeConfig(t, sim.Socket(), "")
	d := start(t, nil, "serve", "--config", path)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	return []string{"--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", password}
}

func TestStatusShowsTheTarget(t *testing.T) {
	sim := target(t)
	stored(t, sim)
	at := through(t, sim)
	for _, where := range [][]string{at, {"--socket", sim.Socket()}} {
		o := run(t, "", append([]string{"status"}, where...)...)
		require.Zero(t, o.code, o.stderr)
		assert.Contains(t, o.stdout, "SPDK v26.05, up ")
		assert.Regexp(t, `(?m)^lvs0 \[-+\.+\]   0 % of \d+(\.\d)? MiB, \d+ % provisioned, 1 volume, 0 snapshots$`, o.stdout)
		assert.NotContains(t, o.stdout, "\x1b", "the output is not a terminal")
		assert.Equal(t, where[0] == "--url", strings.Contains(o.stdout, "Calls by user"), "of a proxy")
	}
	var fromJSON, fromYAML terminal.Status
	o := run(t, "", append([]string{"status", "-o", "json"}, at...)...)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &fromJSON))
	assert.Equal(t, 1, fromJSON.Volumes)
	o = run(t, "", append([]string{"status", "-o", "yaml"}, at...)...)
	require.NoError(t, yaml.Unmarshal([]byte(o.stdout), &fromYAML))
	assert.Equal(t, fromJSON.Stores, fromYAML.Stores)
	assert.Equal(t, exitUsage, run(t, "", append([]string{"status", "-o", "xml"}, at...)...).code)
	assert.Equal(t, exitUsage, run(t, "", append([]string{"status", "--watch", "--interval", "1ms"}, at...)...).code)
	assert.Equal(t, exitUsage, run(t, "", "status").code)

	sim.Crash()
	o = run(t, "", append([]string{"status"}, at...)...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "Target unreachable\n")
	assert.Contains(t, o.stdout, "! the target is unreachable\n")
	assert.Equal(t, exitUnreachable, run(t, "", "status", "--socket", sim.Socket()).code)
	require.NoError(t, os.WriteFile(at[len(at)-1], []byte("wrong\n"), 0o600))
	assert.Equal(t, exitDenied, run(t, "", append([]string{"status"}, at...)...).code)
}

// For a tenant, status shows the tenant's quota and objects, and top shows the tenant's bdevs.
func TestStatusAndTopShowOnlyTheTenantsObjects(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			sim, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release), ExamineListed: true})
			require.NoError(t, err)
			defer func() { _ = sim.Close() }()
			stored(t, sim)
			statusAndTopOfATenant(t, sim)
		})
	}
}

func statusAndTopOfATenant(t *testing.T, sim *spdktest.Target) {
	path := writeConfig(t, sim.Socket(), "")
	change(t, path, "roles: [admin, careful]", "roles: [read-only], tenant: team")
	change(t, path, "roles: {careful", `tenants: {team: {lvstores: [lvs0], bdevs: [own-*], quota: {volumes: 4}, hosts: ["nqn.2014-08.org.nvmexpress:uuid:*"]}, others: {lvstores: [lvs9]}}`+"\nroles: {careful")
	d := start(t, nil, "serve", "--config", path)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	at := []string{"--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", password}
	var o outcome
	require.Eventually(t, func() bool { // the proxy reads the list of lvstores every 2 s
		o = run(t, "", append([]string{"status"}, at...)...)
		return strings.Contains(o.stdout, "lvs0 [")
	}, time.Minute, 100*time.Millisecond)
	require.Zero(t, o.code, o.stderr)
	for _, untrue := range []string{"Cores ", "Connections ", "denied", "\n? ", "Warnings", "others"} {
		assert.NotContains(t, o.stdout, untrue)
	}
	assert.Contains(t, o.stdout, "Quota of tenant team\nspace      8 MiB used, without a limit\nvolumes    [######..................]  25 %, 1 of 4 volumes\nsubsystems [")
	assert.Contains(t, o.stdout, "\nLvstores     lvs0\nBdevs        own-*\nHosts        nqn.2014-08.org.nvmexpress:uuid:*\n")
	assert.Contains(t, o.stdout, "This is all that belongs to tenant team.")
	o = run(t, "", append([]string{"status", "-o", "json"}, at...)...)
	var s terminal.Status
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &s))
	require.Len(t, s.Tenants, 1)
	assert.EqualValues(t, 1, *s.Tenants[0].Used.Volumes)
	assert.EqualValues(t, 4, *s.Tenants[0].Quota.Volumes)
	assert.Contains(t, strings.Join(s.Missing, "\n"), "framework_get_reactors", "cores and busy are 0 because the user may not read them")

	top := func(args ...string) string {
		o := run(t, "", append(append([]string{"top", "--count", "1", "--interval", "1s"}, args...), at...)...)
		require.Zero(t, o.code, o.stderr)
		return o.stdout
	}
	assert.Regexp(t, `  1 volume, over \d+\.\d s\nVOLUME +READ/s .*\nlvs0/v0 +0 +0 `, top(), "its own volumes")
	socket := spdkrpc.NewSocket(sim.Socket())
	defer func() { _ = socket.Close() }()
	require.NoError(t, socket.Call(t.Context(), "bdev_malloc_create", json.RawMessage(`{"name":"own-1","num_blocks":8,"block_size":512}`), nil))
	all := top("--all")
	assert.Regexp(t, `\nown-1 +0 +0 `, all)
	assert.NotRegexp(t, `\nm0 `, all, "the disk does not belong to the tenant")
	require.NoError(t, socket.Call(t.Context(), "bdev_lvol_delete", json.RawMessage(`{"name":"lvs0/v0"}`), nil))
	assert.Regexp(t, `  0 volumes\nVOLUME +READ/s .*\n$`, top(), "no volumes are no error")
}

// For an administrator, status shows how much of its quota each tenant uses.
func TestStatusShowsTenants(t *testing.T) {
	sim := target(t)
	stored(t, sim)
	path := writeConfig(t, sim.Socket(), "")
	change(t, path, "roles: {careful", `tenants: {team: {lvstores: [lvs0], quota: {volumes: 1}}, others: {lvstores: [lvs9]}}`+"\nroles: {careful")
	d := start(t, nil, "serve", "--config", path)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	o := run(t, "", "status", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", password)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "Tenants\nteam   [########################] 100 %, 1 of 1 volumes\nothers ")
	assert.Contains(t, o.stdout, "! tenant team uses 100 % of its quota: 1 of 1 volumes\n")
	assert.NotContains(t, o.stdout, "This is all")
}

func TestStatusShowsThatTheTargetIsStarting(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{WaitForRPC: true})
	require.NoError(t, err)
	defer func() { _ = sim.Close() }()
	o := run(t, "", append([]string{"status"}, through(t, sim)...)...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "Target startup v26.05\n")
	assert.Contains(t, o.stdout, "! the target waits for framework_start_init\n")
}

func TestTopShowsTheBusiestVolumes(t *testing.T) {
	sim := target(t)
	stored(t, sim)
	for _, where := range [][]string{through(t, sim), {"--socket", sim.Socket()}} {
		o := run(t, "", append([]string{"top", "--count", "1", "--interval", "1s", "-n", "1"}, where...)...)
		require.Zero(t, o.code, o.stderr)
		assert.Regexp(t, `^.*\d\d:\d\d:\d\d  1 volume, over \d+\.\d s\nVOLUME +READ/s .*\nlvs0/v0 +0 +0 `, o.stdout)
		assert.NotContains(t, o.stdout, "m0")
		o = run(t, "", append([]string{"top", "--count", "1", "--interval", "1s", "--all"}, where...)...)
		assert.Contains(t, o.stdout, "\nm0 ")
		assert.Equal(t, exitUsage, run(t, "", append([]string{"top", "--sort", "name"}, where...)...).code)
	}
	sim.Crash()
	assert.Equal(t, exitUnreachable, run(t, "", "top", "--socket", sim.Socket()).code)
}

// The packaged scripts complete commands and flag values.
func TestPackagedCompletions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		o := run(t, "", "completion", shell)
		require.Zero(t, o.code, o.stderr)
		assert.Contains(t, o.stdout, "spdk-proxy")
	}
	assert.Contains(t, run(t, "", "__complete", "st").stdout, "status\t")
	assert.Contains(t, run(t, "", "__complete", "status", "-o", "").stdout, "yaml")
	assert.Contains(t, run(t, "", "__complete", "top", "--sort", "").stdout, "latency")
}
