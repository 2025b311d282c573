package proxy

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func targetInfoOf(t *testing.T, g got) (info spdkrpc.ProxyTargetInfo) {
	var response struct{ Result *spdkrpc.ProxyTargetInfo }
	require.NoError(t, json.Unmarshal([]byte(g.body), &response), g.body)
	require.NotNil(t, response.Result, g.body)
	return *response.Result
}

func TestTargetInfo(t *testing.T) {
	b := newTenantBench(t)
	info := targetInfoOf(t, b.as(t, teamA, "spdkgate_target_get_info", "", http.StatusOK))
	require.NotNil(t, info.ExaminesVolumes)
	assert.True(t, *info.ExaminesVolumes)
	assert.NotNil(t, info.Since)
	assert.False(t, info.Acknowledged)
	b = newBench(t, "v24.01", func(c *config.Config) { c.Target.AcceptLoadingWhatHostsWrite = true })
	assert.True(t, targetInfoOf(t, b.as(t, "admin", "spdkgate_target_get_info", "", http.StatusOK)).Acknowledged)
}
