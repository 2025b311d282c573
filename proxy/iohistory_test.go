package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (b *bench) ioHistory(t *testing.T, user, params string) (list []spdkrpc.ProxyBdevIO) {
	t.Helper()
	var answer struct{ Result []spdkrpc.ProxyBdevIO }
	require.NoError(t, json.Unmarshal([]byte(b.as(t, user, "spdkgate_get_io_history", params, http.StatusOK).body), &answer))
	return answer.Result
}

// Tenants can read the I/O history only of their own bdevs; administrators can read that of all
// bdevs.
func TestTenantsCanReadOnlyTheirOwnIOHistory(t *testing.T) {
	b := newTenantBench(t, withReader(t))
	uuids := map[string]string{}
	for _, user := range []string{teamA, teamB} {
		var made struct{ Result string }
		answer := b.as(t, user, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"lvs-`+user[len(user)-1:]+`"}`, http.StatusOK)
		require.NoError(t, json.Unmarshal([]byte(answer.body), &made))
		uuids[user] = made.Result
	}
	require.Empty(t, b.ioHistory(t, "admin", ""))
	require.Eventually(t, func() bool {
		for _, uuid := range uuids {
			require.True(t, b.target.DoIO(uuid, spdkrpc.BdevIOStatBdev{NumReadOps: 10, BytesRead: 40960, ReadLatencyTicks: 10_000_000}))
		}
		b.proxy.observe.SampleIO(t.Context())
		return len(b.ioHistory(t, "admin", "")) == 2
	}, long, 10*time.Millisecond)

	for _, params := range []string{"", `{"name":"lvs-a/vol"}`, fmt.Sprintf(`{"name":%q}`, uuids[teamA])} {
		list := b.ioHistory(t, teamA, params)
		require.Len(t, list, 1, params)
		assert.Equal(t, uuids[teamA], list[0].Name)
		assert.Equal(t, "lvs-a/vol", *list[0].Alias)
		require.NotEmpty(t, list[0].Samples)
		last := list[0].Samples[len(list[0].Samples)-1]
		assert.Positive(t, last.ReadIOsPerSec)
		assert.InDelta(t, 4096, last.ReadBytesPerSec/last.ReadIOsPerSec, 1)
		assert.InDelta(t, 1000, last.ReadLatencyUS, 1, "microseconds")
		assert.Zero(t, last.WriteIOsPerSec)
		assert.InDelta(t, time.Now().Unix(), last.Time, 600)
	}
	theirs := b.as(t, teamA, "spdkgate_get_io_history", fmt.Sprintf(`{"name":%q}`, uuids[teamB]), http.StatusOK)
	nobodys := b.as(t, teamA, "spdkgate_get_io_history", `{"name":"8b6fd5f4-6a4b-4d2a-8a3e-0e8a35f9d5a1"}`, http.StatusOK)
	assert.Equal(t, nobodys.body, theirs.body)
	assert.Contains(t, theirs.body, `"result":[]`)
	assert.Len(t, b.ioHistory(t, "admin", fmt.Sprintf(`{"name":%q}`, uuids[teamB])), 1)
}

func TestIOHistoryCanBeDisabled(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) { c.Metrics.IOHistory = false })
	assert.Contains(t, b.as(t, "admin", "spdkgate_get_io_history", "", http.StatusBadRequest).body, "has no metrics.io_history: true")
}

// While a volume's histogram is enabled, the history contains percentiles of the volume's
// latencies. Otherwise, it contains the histogram's state.
func TestIOHistoryContainsPercentilesOfEnabledHistograms(t *testing.T) {
	b := newTenantBench(t, withReader(t))
	b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"vol","size_in_mib":8,"lvs_name":"lvs-a"}`, http.StatusOK)
	b.as(t, "admin", "nvmf_create_subsystem", `{"nqn":"nqn.2026-11.example:io"}`, http.StatusOK)
	b.as(t, "admin", "nvmf_subsystem_add_ns", `{"nqn":"nqn.2026-11.example:io","namespace":{"bdev_name":"lvs-a/vol"}}`, http.StatusOK)
	sampled := func() (bdev spdkrpc.ProxyBdevIO, last spdkrpc.ProxyIOSample) {
		require.True(t, b.target.DoIO("lvs-a/vol", spdkrpc.BdevIOStatBdev{NumReadOps: 10, BytesRead: 40960, ReadLatencyTicks: 10_000_000}))
		took := append(slices.Repeat([]time.Duration{time.Millisecond}, 98), 250*time.Millisecond, 250*time.Millisecond)
		require.True(t, b.target.DoLatencies("lvs-a/vol", spdkrpc.BdevIOTypeRead, took...))
		b.proxy.observe.SampleIO(t.Context())
		if list := b.ioHistory(t, teamA, `{"name":"lvs-a/vol"}`); len(list) == 1 && len(list[0].Samples) > 0 {
			return list[0], list[0].Samples[len(list[0].Samples)-1]
		}
		return bdev, last
	}
	state := func(want spdkrpc.ProxyHistogramState) func() bool {
		return func() bool { bdev, _ := sampled(); return bdev.Histogram == want }
	}
	require.Eventually(t, state(spdkrpc.ProxyHistogramStateOff), long, 10*time.Millisecond)
	_, last := sampled()
	assert.Nil(t, last.LatencyP99US)
	b.as(t, "admin", "bdev_enable_histogram", `{"name":"lvs-a/vol","enable":true}`, http.StatusOK)
	require.Eventually(t, state(spdkrpc.ProxyHistogramStatePartial), long, 10*time.Millisecond)
	b.as(t, "admin", "bdev_enable_histogram", `{"name":"lvs-a/vol","enable":false}`, http.StatusOK)
	b.as(t, "admin", "bdev_enable_histogram", `{"name":"lvs-a/vol","enable":true,"min_nsec":0,"max_nsec":18446744073709551615}`, http.StatusOK)
	require.Eventually(t, func() bool {
		var bdev spdkrpc.ProxyBdevIO
		bdev, last = sampled()
		return bdev.Histogram == spdkrpc.ProxyHistogramStateOn && last.LatencyP99US != nil
	}, long, 10*time.Millisecond)
	assert.InDelta(t, 1000, *last.LatencyP50US, 1000./32)
	assert.InDelta(t, 250_000, *last.LatencyP99US, 250_000./32)
	for _, made := range b.ioHistory(t, teamB, "") {
		assert.Failf(t, "another tenant's I/O", "%+v", made)
	}
}
