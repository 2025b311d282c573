package proxy

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// withReader gives the role read-only to all users except the first, and enables target.keys.
func withReader(t *testing.T) func(*config.Config) {
	return func(c *config.Config) {
		c.Target.Keys.Dir = filepath.Join(t.TempDir(), "keys")
		for i := range c.Users[1:] {
			c.Users[1+i].Roles = append(c.Users[1+i].Roles, "read-only")
		}
	}
}

func (b *bench) tenants(t *testing.T, user, params string) (list []spdkrpc.ProxyTenant) {
	t.Helper()
	var answer struct{ Result []spdkrpc.ProxyTenant }
	require.NoError(t, json.Unmarshal([]byte(b.as(t, user, "spdkgate_get_tenants", params, http.StatusOK).body), &answer))
	return answer.Result
}

// A tenant can read its own quota and usage, but learns nothing about other tenants. Users without
// a tenant can read the quotas and usage of all tenants.
func TestTenantsCanReadTheirOwnUsage(t *testing.T) {
	b := newTenantBench(t, withReader(t))
	b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"lvs-a"}`, http.StatusOK)
	b.as(t, teamB, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":16,"lvs_name":"lvs-b"}`, http.StatusOK)
	own := b.tenants(t, teamA, "")
	require.Len(t, own, 1)
	a := own[0]
	assert.Equal(t, "team-a", a.Name)
	assert.True(t, a.Own)
	assert.EqualValues(t, 8<<20, *a.Used.Bytes)
	assert.EqualValues(t, 1, *a.Used.Volumes)
	assert.EqualValues(t, 0, *a.Used.Keys)
	assert.EqualValues(t, 2000<<30, *a.Quota.Bytes)
	assert.EqualValues(t, 500, *a.Quota.Volumes)
	assert.EqualValues(t, 1024, *a.Quota.Hosts, "the default")
	assert.Equal(t, []string{"lvs-a"}, a.Lvstores)
	assert.Equal(t, []string{"192.0.2.11:4420"}, a.Addresses)
	assert.Equal(t, []string{"team-a-"}, a.KeyPrefixes)
	assert.Equal(t, "nqn.2020-04.io.spdk.csi:uuid:", *a.VolumeNQNPrefix)
	assert.Equal(t, []string{}, a.Allow, "an empty list, not null")
	assert.Equal(t, own, b.tenants(t, teamA, `{"tenant":"team-a"}`))

	// The responses for another tenant and for a missing tenant are identical.
	theirs := b.as(t, teamA, "spdkgate_get_tenants", `{"tenant":"team-b"}`, http.StatusOK)
	nobodys := b.as(t, teamA, "spdkgate_get_tenants", `{"tenant":"nobody"}`, http.StatusOK)
	assert.Equal(t, -2, theirs.code(t))
	assert.Equal(t, nobodys.body, strings.ReplaceAll(theirs.body, "team-b", "nobody"))
	assert.Contains(t, b.as(t, teamA, "rpc.discover", "", http.StatusOK).body, `"spdkgate_get_tenants"`)

	all := b.tenants(t, "admin", "")
	require.Len(t, all, 2)
	a.Own = false
	assert.Equal(t, a, all[0])
	assert.EqualValues(t, 16<<20, *all[1].Used.Bytes)
	assert.Equal(t, all[1:], b.tenants(t, "admin", `{"tenant":"team-b"}`))
	assert.Equal(t, -2, b.as(t, "admin", "spdkgate_get_tenants", `{"tenant":"nobody"}`, http.StatusOK).code(t))
}

// Usage counts keys as spdkgate_key_add does. Without target.keys, no keys are reported.
func TestUsageCountsKeys(t *testing.T) {
	b := newTenantBench(t, withReader(t))
	b.as(t, teamA, "spdkgate_key_add", `{"name":"team-a-1","secret":"`+secret+`"}`, http.StatusOK)
	b.as(t, "admin", "spdkgate_key_add", `{"name":"team-a-2","secret":"`+secret+`"}`, http.StatusOK)
	b.as(t, teamB, "spdkgate_key_add", `{"name":"team-b-1","secret":"`+secret+`"}`, http.StatusOK)
	assert.EqualValues(t, 2, *b.tenants(t, teamA, "")[0].Used.Keys)
	assert.EqualValues(t, 256, *b.tenants(t, teamA, "")[0].Quota.Keys)

	b = newTenantBench(t)
	all := b.tenants(t, "admin", "")
	assert.Nil(t, all[0].Used.Keys)
	assert.Nil(t, all[0].Quota.Keys)
	// the user's roles do not allow it
	b.as(t, teamA, "spdkgate_get_tenants", "", http.StatusForbidden)

	b = newSafeBench(t, "v26.05")
	assert.Empty(t, b.tenants(t, "admin", ""), "no tenants")
}

// The target's metrics report each tenant's usage to users without a tenant. These metrics name
// only tenants in the configuration. The proxy reads the lists for these metrics at most once per
// minute.
func TestMetricsReportTenantsUsage(t *testing.T) {
	b := newTenantBench(t, withReader(t))
	b.readAnew()
	b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"lvs-a"}`, http.StatusOK)
	scraped := b.scrapeTarget().body
	for _, line := range []string{
		`spdk_tenant_used_bytes{tenant="team-a"} 8388608`, `spdk_tenant_quota_bytes{tenant="team-a"} 2147483648000`, `spdk_tenant_used_bytes{tenant="team-b"} 0`,
		`spdk_tenant_used_objects{tenant="team-a",object="volumes"} 1`, `spdk_tenant_quota_objects{tenant="team-a",object="volumes"} 500`,
		`spdk_tenant_used_objects{tenant="team-a",object="keys"} 0`, `spdk_tenant_quota_objects{tenant="team-b",object="hosts"} 1024`,
	} {
		assert.Contains(t, scraped, "\n"+line+"\n")
	}
	assert.Equal(t, http.StatusForbidden, b.do("GET", "/metrics/target", teamA, adminPassword, nil).StatusCode)

	listed := func() (n int) {
		for _, method := range b.reached() {
			if method == "nvmf_get_subsystems" {
				n++
			}
		}
		return n
	}
	before := listed()
	again := b.scrapeTarget().body
	assert.Contains(t, again, `spdk_tenant_used_bytes{tenant="team-a"} 8388608`)
	assert.Equal(t, before, listed(), "no list was read again")

	// After a reload, the metrics cover the tenants of the new configuration.
	next := *b.config
	next.Tenants = map[string]config.Tenant{"team-a": b.config.Tenants["team-a"]}
	next.Users = next.Users[:2]
	require.NoError(t, b.proxy.Reload(&next))
	again = b.scrapeTarget().body
	assert.Contains(t, again, `spdk_tenant_used_bytes{tenant="team-a"} 8388608`)
	assert.NotContains(t, again, "team-b")

	// If the usage cannot be read, the metrics do not report old figures.
	next.Tenants = b.config.Tenants
	next.Users = b.config.Users
	require.NoError(t, b.proxy.Reload(&next))
	b.target.Inject(spdktest.Fault{Method: "nvmf_get_subsystems", Do: spdktest.Fail})
	again = b.scrapeTarget().body
	assert.NotContains(t, again, "spdk_tenant_")
	assert.Contains(t, again, `spdk_reading_failures_total{method="spdkgate_get_tenants"} 1`)
}

// A tenant can read its own limits on calls, and how much of them is in use, even while all of its
// calls are waiting and while the target is down. The response reveals nothing about other users.
func TestTenantsCanReadTheirOwnLimits(t *testing.T) {
	reader := withReader(t)
	b := newTenantBench(t, func(c *config.Config) {
		reader(c)
		c.Limits.UsersInFlight = map[string]int{teamA: 1}
		c.Limits.UsersCallsPerSecond = map[string]int{teamA: 1000}
	})
	limits := func(user string) (l spdkrpc.ProxyLimits) {
		var answer struct{ Result spdkrpc.ProxyLimits }
		require.NoError(t, json.Unmarshal([]byte(b.as(t, user, "spdkgate_get_limits", "", http.StatusOK).body), &answer))
		return answer.Result
	}
	a := limits(teamA)
	assert.Equal(t, teamA, a.User)
	assert.Equal(t, []uint64{0, 1, 0, 4}, []uint64{a.CallsRunning, a.CallsRunningLimit, a.CallsWaiting, a.CallsWaitingLimit})
	assert.Positive(t, *a.CallsPerSecond)
	assert.EqualValues(t, 1000, *a.CallsPerSecondLimit)
	assert.Nil(t, limits("admin").CallsPerSecondLimit)
	assert.EqualValues(t, 256, limits("admin").CallsRunningLimit)
	assert.Contains(t, b.as(t, teamA, "rpc.discover", "", http.StatusOK).body, `"spdkgate_get_limits"`)
	text := b.do("GET", "/metrics", "admin", adminPassword, nil).body
	assert.Contains(t, text, "spdk_proxy_user_calls_in_flight_limit{user=\""+teamA+"\"} 1\n")
	assert.Contains(t, text, "spdk_proxy_user_calls_per_second_limit{user=\""+teamA+"\"} 1000\n")
	assert.NotContains(t, text, `spdk_proxy_user_calls_per_second_limit{user="admin"}`)

	b.target.Inject(spdktest.Fault{Method: "spdk_get_version", Do: spdktest.Hang})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			b.do("POST", "/", teamA, adminPassword, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`))
		})
	}
	require.Eventually(t, func() bool { l := limits(teamA); return l.CallsRunning == 1 && l.CallsWaiting == 1 }, time.Minute, 10*time.Millisecond)
	assert.Zero(t, limits("admin").CallsRunning)
	b.target.Crash()
	calls.Wait()
	require.Eventually(t, func() bool { l := limits(teamA); return l.CallsRunning == 0 && l.CallsWaiting == 0 }, time.Minute, 10*time.Millisecond)
}
