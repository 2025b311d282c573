package proxy

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func targetInfoOf(t *testing.T, g got) (info spdkrpc.ProxyTargetInfo) {
	var response struct{ Result *spdkrpc.ProxyTargetInfo }
	require.NoError(t, json.Unmarshal([]byte(g.body), &response), g.body)
	require.NotNil(t, response.Result, g.body)
	return *response.Result
}

func TestTargetInfoReportsExamination(t *testing.T) {
	b := newTenantBench(t)
	info := targetInfoOf(t, b.as(t, teamA, "spdkgate_target_get_info", "", http.StatusOK))
	require.NotNil(t, info.ExaminesVolumes)
	assert.False(t, *info.ExaminesVolumes)
	assert.NotNil(t, info.Since)
	assert.False(t, info.Acknowledged)
	b = newBench(t, "v24.01", func(c *config.Config) { c.Target.AcceptLoadingWhatHostsWrite = true })
	info = targetInfoOf(t, b.as(t, "admin", "spdkgate_target_get_info", "", http.StatusOK))
	assert.True(t, *info.ExaminesVolumes)
	assert.True(t, info.Acknowledged)
}

func oneTeam(c *config.Config) {
	c.Users = append(c.Users, config.User{Name: "team", PasswordHash: hashes()[adminPassword], Roles: []string{"admin"}, Tenant: "team"})
	c.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs-team"}}}
}

// While the target examines volumes, calls by tenants' users are refused, but calls by
// administrators are not.
func TestTenantCallsAreRefusedWhileTheTargetExaminesVolumes(t *testing.T) {
	b := newBench(t, "v26.05", oneTeam)
	for _, method := range []string{"bdev_get_bdevs", "spdk_get_version", "nvmf_get_subsystems", "bdev_wait_for_examine"} {
		g := b.as(t, "team", method, "", http.StatusForbidden)
		assert.Equal(t, jsonrpc.CodeForbidden, g.code(t))
		assert.Contains(t, g.body, "target.accept_loading_what_hosts_write")
		assert.Equal(t, "deny", b.lastCall()["decision"], method)
	}
	b.as(t, "team", "spdkgate_target_get_info", "", http.StatusOK)
	b.as(t, "admin", "bdev_get_bdevs", "", http.StatusOK)
	assert.Equal(t, http.StatusForbidden, b.do("GET", "/events", "team", adminPassword, nil).StatusCode)
	assert.Contains(t, b.scrape(), `spdk_proxy_target_loads_what_hosts_write{accepted="false"} 1`)

	b = newBench(t, "v26.05", oneTeam, func(c *config.Config) { c.Target.AcceptLoadingWhatHostsWrite = true })
	b.as(t, "team", "bdev_get_bdevs", "", http.StatusOK)
	b = newSafeBench(t, "v24.01", oneTeam)
	b.as(t, "team", "bdev_get_bdevs", "", http.StatusOK)
	assert.Len(t, b.log.Lines(t, "target does not load what hosts write into volumes"), 1)
}

// If the target does not report whether it examines volumes, the proxy assumes that it does.
func TestTenantCallsAreRefusedUntilTheExaminationIsKnown(t *testing.T) {
	b := newBenchWith(t, spdktest.Options{Release: rpcschema.MustRelease("v26.05"), ExamineListed: true, WaitForRPC: true}, oneTeam)
	b.as(t, "team", "rpc_get_methods", "", http.StatusForbidden)
	assert.Nil(t, targetInfoOf(t, b.as(t, "team", "spdkgate_target_get_info", "", http.StatusOK)).ExaminesVolumes)
	b.as(t, "admin", "bdev_set_options", `{"bdev_auto_examine":true}`, http.StatusOK)
	b.as(t, "admin", "framework_start_init", "", http.StatusOK)
	require.Eventually(t, func() bool {
		return targetInfoOf(t, b.as(t, "team", "spdkgate_target_get_info", "", http.StatusOK)).ExaminesVolumes != nil
	}, long, long/1000)
	b.as(t, "team", "rpc_get_methods", "", http.StatusForbidden)
}
