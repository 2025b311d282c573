package proxy

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

func barrierCall(id, step string) string {
	return rpcCall(barrierMethod, fmt.Sprintf(`{"id":%q,"step":%q}`, id, step))
}

func snapshotWithBarrier(id, name string, ms int) string {
	return rpcCall(safeSnapshotMethod, fmt.Sprintf(`{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":%q}],"barrier":{"id":%q,"wait_ms":%d}}`, name, id, ms))
}

// A snapshot with a barrier is taken only after its user has opened the barrier.
func TestSnapshotWaitsAtItsBarrier(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t), func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "other", PasswordHash: c.Users[0].PasswordHash, Roles: []string{policy.Admin}})
	})
	b.exported(t, true)
	const id = "barrier-1"
	taken := make(chan got, 1)
	go func() { taken <- b.post(snapshotWithBarrier(id, "s1", 5000)) }()
	require.Equal(t, http.StatusOK, b.post(barrierCall(id, "await")).StatusCode)
	assert.NotContains(t, b.call(t, "bdev_lvol_get_lvols", ""), `"s1"`, "it is frozen, but not taken")
	assert.Contains(t, b.call(t, "nvmf_subsystem_get_listeners", `{"nqn":"nqn.2016-06.io.spdk:v"}`), `"inaccessible"`)
	other := b.of("other", barrierCall(id, "open"))
	assert.Equal(t, jsonrpc.CodeTooMany, other.code(t), "another user opens the barrier")
	require.Equal(t, http.StatusOK, b.post(barrierCall(id, "open")).StatusCode)
	g := <-taken
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	assert.Contains(t, g.body, `"frozen":true`)
	assert.Contains(t, b.call(t, "bdev_lvol_get_lvols", ""), `"s1"`)
	assert.NotContains(t, b.call(t, "nvmf_subsystem_get_listeners", `{"nqn":"nqn.2016-06.io.spdk:v"}`), `"inaccessible"`)
}

func TestUnopenedBarriersFail(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	b.exported(t, true)
	refused := func(g got, says string) {
		t.Helper()
		assert.Equal(t, http.StatusTooManyRequests, g.StatusCode, g.body)
		assert.Equal(t, jsonrpc.CodeTooMany, g.code(t))
		assert.Contains(t, g.body, says)
		assert.NotContains(t, b.call(t, "nvmf_subsystem_get_listeners", `{"nqn":"nqn.2016-06.io.spdk:v"}`), `"inaccessible"`)
		assert.NotContains(t, b.call(t, "bdev_lvol_get_lvols", ""), `"s1"`)
	}
	refused(b.post(snapshotWithBarrier("barrier-1", "s1", 1)), "not opened in time")
	refused(b.post(barrierCall("barrier-1", "open")), "no call is waiting")

	taken := make(chan got, 1)
	go func() { taken <- b.post(snapshotWithBarrier("barrier-2", "s1", 5000)) }()
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-2", "await")).StatusCode)
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-2", "give-up")).StatusCode)
	refused(<-taken, "the barrier was abandoned")

	go func() { taken <- b.post(snapshotWithBarrier("barrier-3", "s1", 5000)) }()
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-3", "await")).StatusCode)
	second := b.post(snapshotWithBarrier("barrier-3", "s2", 5000))
	assert.Contains(t, second.body, "another call is waiting")
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-3", "give-up")).StatusCode)
	refused(<-taken, "the barrier was abandoned")
}
