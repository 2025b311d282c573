package proxy

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// newTenantBench creates a proxy with the configuration in docs/tenants.md, for a target with two
// lvstores. All passwords are the same.
func newTenantBench(t *testing.T, change ...func(*config.Config)) *bench {
	dir := t.TempDir()
	handOver(t, map[string]string{"admin": adminPassword, "team-a": adminPassword, "team-b": adminPassword, "reader-a": adminPassword})
	path := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte("listen: \"127.0.0.1:0\"\n"+documented(t, "docs/tenants.md", "Set up two tenants", "yaml")[0]), 0o600))
	c, err := loadAndCheck(path)
	require.NoError(t, err)
	b := newSafeBench(t, "v26.05", func(used *config.Config) {
		used.Users, used.Tenants = c.Users, c.Tenants
		// Allow the teams' drivers to call more methods than usual, so that the test covers
		// tenancy's decisions about these methods.
		used.Roles = map[string]config.Role{"volumes": {Allow: rules("bdev_lvol_*", "nvmf_*"), Deny: rules("bdev_lvol_*_lvstore")}}
		for i, u := range used.Users {
			if u.Name == teamA || u.Name == teamB {
				used.Users[i].Roles = append(u.Roles, "volumes")
			}
		}
		for _, f := range change {
			f(used)
		}
	})
	for _, team := range []string{"a", "b"} {
		b.as(t, "admin", "bdev_malloc_create", `{"name":"Base`+team+`","num_blocks":524288,"block_size":4096}`, http.StatusOK)
		b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"Base`+team+`","lvs_name":"lvs-`+team+`"}`, http.StatusOK)
	}
	b.as(t, "admin", "nvmf_create_transport", `{"trtype":"TCP"}`, http.StatusOK)
	return b
}

// as makes a call and expects this status. If params is empty, the call has no parameters.
func (b *bench) as(t *testing.T, user, method, params string, status int) got {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)
	if params != "" {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	}
	g := b.do("POST", "/", user, adminPassword, strings.NewReader(body))
	require.Equal(t, status, g.StatusCode, "%s %s %s: %s", user, method, params, g.body)
	return g
}

const (
	teamA = "csi-of-team-a"
	teamB = "csi-of-team-b"
)

// resultText returns a result that is a string.
func resultText(t *testing.T, g got) string {
	_, rest, ok := strings.Cut(g.body, `"result":"`)
	require.True(t, ok, g.body)
	s, _, _ := strings.Cut(rest, `"`)
	return s
}

// Two teams can each manage a volume, and neither learns anything about the other.
func TestTeamsAreIsolatedOnOneTarget(t *testing.T) {
	b := newTenantBench(t)
	volumes := map[string]string{}
	for user, team := range map[string]struct{ lvs, address string }{teamA: {"lvs-a", "192.0.2.11"}, teamB: {"lvs-b", "198.51.100.11"}} {
		v := resultText(t, b.as(t, user, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"`+team.lvs+`"}`, http.StatusOK))
		volumes[user] = v
		nqn := `"nqn":"nqn.2020-04.io.spdk.csi:uuid:` + v + `"`
		b.as(t, user, "nvmf_create_subsystem", `{`+nqn+`,"serial_number":"s"}`, http.StatusOK)
		b.as(t, user, "nvmf_subsystem_add_ns", `{`+nqn+`,"namespace":{"bdev_name":"`+v+`"}}`, http.StatusOK)
		b.as(t, user, "nvmf_subsystem_add_listener", `{`+nqn+`,"listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"`+team.address+`","trsvcid":"4420"}}`, http.StatusOK)
		b.as(t, user, "nvmf_subsystem_add_host", `{`+nqn+`,"host":"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"}`, http.StatusOK)
	}
	for _, method := range []string{"bdev_get_bdevs", "bdev_lvol_get_lvols", "nvmf_get_subsystems"} {
		list := b.as(t, teamA, method, "", http.StatusOK).body
		assert.Contains(t, list, volumes[teamA], method)
		assert.NotContains(t, list, volumes[teamB], method)
		assert.NotContains(t, list, "lvs-b", method)
	}

	// The responses for the other team's object and for a missing object are identical.
	const none = "99999999-abcd-4333-8444-abcdefabcdef"
	for _, c := range []struct{ method, params string }{
		{"bdev_get_bdevs", `{"name":"%s"}`},
		{"bdev_lvol_delete", `{"name":"%s"}`},
		{"bdev_lvol_snapshot", `{"lvol_name":"%s","snapshot_name":"s"}`},
		{"bdev_lvol_clone_bdev", `{"bdev":"%s","lvs_name":"lvs-a","clone_name":"c"}`},
		{"nvmf_get_subsystems", `{"nqn":"nqn.2020-04.io.spdk.csi:uuid:%s"}`},
		{"nvmf_delete_subsystem", `{"nqn":"nqn.2020-04.io.spdk.csi:uuid:%s"}`},
		{"nvmf_subsystem_add_ns", `{"nqn":"nqn.2020-04.io.spdk.csi:uuid:` + volumes[teamA] + `","namespace":{"bdev_name":"%s"}}`},
	} {
		theirs := b.as(t, teamA, c.method, fmt.Sprintf(c.params, volumes[teamB]), http.StatusOK)
		nobodys := b.as(t, teamA, c.method, fmt.Sprintf(c.params, none), http.StatusOK)
		assert.Equal(t, strings.ReplaceAll(nobodys.body, none, "X"), strings.ReplaceAll(theirs.body, volumes[teamB], "X"), c.method)
		assert.Contains(t, theirs.body, `"error"`, c.method)
	}
	lines := b.log.Lines(t, "call")
	last := lines[len(lines)-1]
	assert.Equal(t, "team-a", last["tenant"])
	assert.EqualValues(t, 1, last["hidden"])

	// Calls that affect all users are refused with an explanation.
	refused := b.as(t, teamA, "nvmf_create_transport", `{"trtype":"RDMA"}`, http.StatusForbidden)
	assert.Contains(t, refused.body, "tenants may not")
	lines = b.log.Lines(t, "call")
	last = lines[len(lines)-1]
	assert.Equal(t, "deny", last["decision"])
	assert.Equal(t, "tenant team-a", last["rule"])

	// Each team's quota is 2,000 GiB, of which team-a uses 8 MiB.
	const most = 2000 << 10
	over := b.as(t, teamA, "bdev_lvol_create", fmt.Sprintf(`{"lvol_name":"big","size_in_mib":%d,"lvs_name":"lvs-a","thin_provision":true}`, most), http.StatusInsufficientStorage)
	assert.Equal(t, -28, over.code(t))
	b.as(t, teamA, "bdev_lvol_create", fmt.Sprintf(`{"lvol_name":"big","size_in_mib":%d,"lvs_name":"lvs-a","thin_provision":true}`, most-8), http.StatusOK)

	// The OpenRPC document contains only methods that the users may call.
	document := b.as(t, teamA, "rpc.discover", "", http.StatusOK).body
	assert.Contains(t, document, `"bdev_lvol_create"`)
	assert.NotContains(t, document, `"nvmf_create_transport"`)
}

// After a reload that adds a user to a tenant, the user sees only the tenant's objects.
func TestReloadChangesTenants(t *testing.T) {
	b := newTenantBench(t)
	assert.Contains(t, b.as(t, "admin", "bdev_lvol_get_lvstores", "", http.StatusOK).body, "lvs-b")
	next := *b.config
	next.Users = append([]config.User{}, b.config.Users...)
	next.Users[0].Tenant = "team-a"
	require.NoError(t, b.proxy.Reload(&next))
	seen := b.as(t, "admin", "bdev_lvol_get_lvstores", "", http.StatusOK).body
	assert.Contains(t, seen, "lvs-a")
	assert.NotContains(t, seen, "lvs-b")
}

// Before a result is filtered, both the result and its filtered copy count against the user's
// memory limit.
func TestResultsAreCountedBeforeFiltering(t *testing.T) {
	b := newTenantBench(t)
	for i := range 20 {
		b.as(t, "admin", "bdev_lvol_create", fmt.Sprintf(`{"lvol_name":"v%d","size_in_mib":8,"lvs_name":"lvs-b"}`, i), http.StatusOK)
	}
	result := len(b.as(t, "admin", "bdev_get_bdevs", "", http.StatusOK).body) - 100
	// the filter queries the target for the owners of lvstores
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_get_lvstores", Do: spdktest.Hang, Times: -1})
	answered := make(chan int)
	go func() {
		answered <- b.do("POST", "/", teamA, adminPassword, strings.NewReader(`{"id":1,"method":"bdev_get_bdevs"}`)).StatusCode
	}()
	require.Eventually(t, func() bool {
		own, _ := b.proxy.gate.MemoryInUse(teamA)
		return own >= 2*result
	}, long, time.Millisecond)
	require.NoError(t, b.target.Close())
	assert.NotEqual(t, http.StatusOK, <-answered)
	require.Eventually(t, func() bool {
		_, total := b.proxy.gate.MemoryInUse("")
		return total == 0
	}, long, time.Millisecond)
}

// A tenant can delete its export after an administrator has deleted the volume.
func TestTenantCanDeleteTheExportOfADeletedVolume(t *testing.T) {
	b := newTenantBench(t)
	v := resultText(t, b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"lvs-a"}`, http.StatusOK))
	nqn := `"nqn":"nqn.2020-04.io.spdk.csi:uuid:` + v + `"`
	host := `"host":"nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"`
	b.as(t, teamA, "nvmf_create_subsystem", `{`+nqn+`,"serial_number":"s"}`, http.StatusOK)
	b.as(t, teamA, "nvmf_subsystem_add_ns", `{`+nqn+`,"namespace":{"bdev_name":"`+v+`"}}`, http.StatusOK)
	b.as(t, teamA, "nvmf_subsystem_add_host", `{`+nqn+`,`+host+`}`, http.StatusOK)
	assert.Contains(t, b.as(t, "admin", "bdev_lvol_delete", `{"name":"`+v+`"}`, http.StatusOK).body, `"result":true`)

	assert.Contains(t, b.as(t, teamA, "nvmf_get_subsystems", "", http.StatusOK).body, v)
	for _, user := range []string{teamA, teamB} {
		assert.Contains(t, b.as(t, user, "nvmf_subsystem_add_host", `{`+nqn+`,`+host+`}`, http.StatusOK).body, `"error"`)
	}
	assert.NotContains(t, b.as(t, teamB, "nvmf_get_subsystems", "", http.StatusOK).body, v)
	assert.Contains(t, b.as(t, teamB, "nvmf_delete_subsystem", `{`+nqn+`}`, http.StatusOK).body, `"error"`)
	assert.Contains(t, b.as(t, teamA, "nvmf_delete_subsystem", `{`+nqn+`}`, http.StatusOK).body, `"result":true`)
	assert.NotContains(t, b.as(t, "admin", "nvmf_get_subsystems", "", http.StatusOK).body, v)
}
