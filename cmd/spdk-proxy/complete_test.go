package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// offers returns what completion offers for the last word, without the descriptions.
func offers(t *testing.T, words ...string) (list []string) {
	t.Helper()
	for line := range strings.Lines(run(t, "", append([]string{"__complete"}, words...)...).stdout) {
		if strings.HasPrefix(line, ":") {
			return list
		}
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		list = append(list, word)
	}
	return list
}

func TestCompletionOffersMethodsAndParameters(t *testing.T) {
	call := func(words ...string) []string { return offers(t, append([]string{"call"}, words...)...) }
	assert.Contains(t, call("bdev_lvol_cr"), "bdev_lvol_create")
	assert.Subset(t, call("bdev_lvol_create", ""), []string{"lvol_name=", "size_in_mib=", "thin_provision="})
	assert.NotContains(t, call("bdev_lvol_create", "lvol_name=v", "lvol_name_is_no_parameter=1", ""), "lvol_name=", "it is given already")
	assert.Subset(t, call("nvmf_subsystem_add_listener", ""), []string{"nqn=", "listen_address."})
	assert.Subset(t, call("nvmf_subsystem_add_listener", "listen_address.trtype=tcp", "listen_address."), []string{"listen_address.traddr=", "listen_address.trsvcid="})
	assert.NotContains(t, call("nvmf_subsystem_add_listener", "listen_address.trtype=tcp", "listen_address."), "listen_address.trtype=")
	assert.Empty(t, call("nvmf_subsystem_add_listener", "nqn."))
	assert.Empty(t, call("no_such_method", ""))
	assert.Contains(t, call("spdkgate_key_add", ""), "secret=@", "a secret comes from a file")
	assert.Contains(t, call("spdkgate_lvol_snapshot", ""), "snapshots:=", "only JSON expresses a list of objects")
}

// Whether the command uses a proxy or the target's socket, completion offers only the methods that
// the target has and the user may call. If nothing responds, completion offers all methods.
func TestCompletionOffersMethodsThatCanBeCalled(t *testing.T) {
	sim := target(t)
	path := writeConfig(t, sim.Socket(), "")
	change(t, path, "roles: [admin, careful]", "roles: [few]")
	change(t, path, "roles: {careful", "roles: {few: {allow: [rpc_get_methods, bdev_get_bdevs, bdev_ftl_create, bdev_lvol_delete, spdkgate_get_tenants]}, careful")
	d := start(t, nil, "serve", "--config", path)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	proxied := []string{"call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", password, ""}

	// Completion waits only briefly for the target, and then offers every method.
	var offered []string
	onlyOfTarget := func(args []string) {
		t.Helper()
		require.Eventually(t, func() bool {
			offered = offers(t, args...)
			return !slices.Contains(offered, "bdev_ftl_create")
		}, long, 10*time.Millisecond, "the simulated target does not have it")
	}
	onlyOfTarget(proxied)
	assert.Subset(t, offered, []string{"rpc_get_methods", "bdev_get_bdevs", "spdkgate_get_tenants"})
	assert.NotContains(t, offered, "bdev_lvol_create", "the user may not call it")
	assert.NotContains(t, offered, "spdkgate_get_metrics", "the user may not call it")

	direct := []string{"call", "--socket", sim.Socket(), ""}
	onlyOfTarget(direct)
	assert.Contains(t, offered, "bdev_lvol_create")
	assert.NotContains(t, offered, "spdkgate_get_tenants", "there is no proxy")

	change(t, path, "rpc_get_methods, ", "")
	d.hangUp()
	require.Eventually(t, func() bool { return !slices.Contains(offers(t, proxied...), "rpc_get_methods") }, long, 10*time.Millisecond)
	assert.Contains(t, offers(t, proxied...), "bdev_ftl_create", "the user may not read what the target has")

	sim.Crash()
	assert.Contains(t, offers(t, direct...), "bdev_ftl_create")
	require.NoError(t, os.WriteFile(password, []byte("wrong\n"), 0o600))
	assert.Contains(t, offers(t, proxied...), "bdev_lvol_create")
}

func TestCompletionOffersValues(t *testing.T) {
	call := func(words ...string) []string { return offers(t, append([]string{"call"}, words...)...) }
	assert.Equal(t, []string{"thin_provision=false", "thin_provision=true"}, call("bdev_lvol_create", "thin_provision="))
	assert.Equal(t, []string{"thin_provision:=false", "thin_provision:=true"}, call("bdev_lvol_create", "thin_provision:=t"))
	assert.Subset(t, call("bdev_lvol_create", "clear_method="), []string{"clear_method=none", "clear_method=unmap"})
	assert.Empty(t, call("bdev_lvol_create", "clear_method:="))
	assert.Empty(t, call("bdev_lvol_create", "lvol_name="))
	assert.Empty(t, call("bdev_lvol_create", "no_such_parameter="))
	assert.Empty(t, call("nvmf_subsystem_add_listener", "listen_address.no_such_member="))
	assert.Subset(t, call("bdev_nvme_attach_controller", "multipath="), []string{"multipath=failover"})
}

func TestCompletionOffersUsers(t *testing.T) {
	path := writeConfig(t, "/no/target.sock", "")
	for _, command := range []string{"show", "explain"} {
		assert.Equal(t, []string{"admin"}, offers(t, "policy", command, "--config", path, "--as", ""))
		assert.Empty(t, offers(t, "policy", command, "--config", "/no/such/file", "--as", ""))
	}
}

// bash replaces only the text after the last "=", so the script must strip the prefix from its
// completions.
func TestBashCompletionsContainOnlyTheValue(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script := run(t, "", "completion", "bash")
	require.Zero(t, script.code, script.stderr)
	complete := func(breaks, word string) string {
		answer := run(t, "", "__complete", "call", "bdev_lvol_create", word).stdout
		// _get_comp_words_by_ref is part of the package bash-completion.
		cmd := exec.CommandContext(t.Context(), bash, "-c", `
COMP_WORDBREAKS=$BREAKS
_get_comp_words_by_ref() { words=(spdk-proxy call bdev_lvol_create "$WORD"); cword=3; cur=$WORD; prev=bdev_lvol_create; }
spdk-proxy() { printf '%s' "$ANSWER"; }
eval "$SCRIPT"
compopt() { :; }
__start_spdk-proxy
printf '<%s>' "${COMPREPLY[@]}"`)
		cmd.Env = []string{"BREAKS=" + breaks, "WORD=" + word, "ANSWER=" + answer, "SCRIPT=" + script.stdout}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Equal(t, "<write_zeroes>", complete(" =:", "clear_method=w"))
	assert.Equal(t, "<clear_method=write_zeroes>", complete(" ", "clear_method=w"), "a user can remove = from the word breaks")
	assert.Equal(t, "<false><true>", complete(" =:", "thin_provision="))
	assert.Equal(t, "<clear_method=>", complete(" =:", "clear_m"))
}
