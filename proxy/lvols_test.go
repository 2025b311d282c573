package proxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// family creates snapshot s with two clones, the volumes v and c.
func (b *bench) family(t *testing.T) {
	b.call(t, "bdev_malloc_create", `{"name":"base","num_blocks":65536,"block_size":4096}`)
	b.call(t, "bdev_malloc_create", `{"name":"copy","num_blocks":65536,"block_size":4096}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs0"}`)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8}`)
	b.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/v","snapshot_name":"s"}`)
	b.call(t, "bdev_lvol_clone", `{"snapshot_name":"lvs0/s","clone_name":"c"}`)
}

// refusedAsBusy makes a call that the proxy must refuse without calling SPDK.
func (b *bench) refusedAsBusy(t *testing.T, method, params string) {
	t.Helper()
	b.target.ForgetCalls()
	g := b.post(rpcCall(method, params))
	assert.Equal(t, http.StatusTooManyRequests, g.StatusCode, g.body)
	assert.Equal(t, jsonrpc.CodeTooMany, g.code(t))
	assert.Contains(t, g.body, "Nothing was executed; retry.")
	for _, c := range b.target.Calls() {
		assert.NotEqual(t, method, c.Method)
	}
}

// A deletion makes only these calls to SPDK. It opens no new connection, on which the proxy would
// additionally have to query the release.
func TestDeletionMakesTheExpectedRPCs(t *testing.T) {
	b := newBench(t, "v26.05")
	b.family(t)
	for _, name := range []string{"lvs0/x", "lvs0/y"} {
		b.post(rpcCall("bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"`+strings.TrimPrefix(name, "lvs0/")+`","size_in_mib":4}`))
		b.target.ForgetCalls()
		require.Equal(t, http.StatusOK, b.post(rpcCall("bdev_lvol_delete", `{"name":"`+name+`"}`)).StatusCode)
	}
	var sent []string
	for _, c := range b.target.Calls() {
		sent = append(sent, c.Method)
	}
	assert.Equal(t, []string{"bdev_get_bdevs", "bdev_get_bdevs", "bdev_lvol_delete"}, sent)
}

// SPDK may execute a call for minutes after its deadline. The volume, its parent and its clones are
// not deleted until SPDK has responded.
func TestDeletionsWaitForCallsThatOutlastTheirDeadline(t *testing.T) {
	for method, params := range map[string]string{
		"bdev_lvol_inflate": `{"name":"lvs0/v"}`, "bdev_lvol_decouple_parent": `{"name":"lvs0/v"}`, "bdev_lvol_resize": `{"name":"lvs0/v","size_in_mib":12}`,
		"bdev_lvol_rename": `{"old_name":"lvs0/v","new_name":"w"}`, "bdev_lvol_delete": `{"name":"lvs0/v"}`, "bdev_lvol_set_read_only": `{"name":"lvs0/v"}`,
		"bdev_lvol_clone": `{"snapshot_name":"lvs0/s","clone_name":"d"}`, "bdev_lvol_grow_lvstore": `{"lvs_name":"lvs0"}`,
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "v26.05")
			b.family(t)
			c := *b.config
			c.Target.Timeouts.Methods = map[string]config.Duration{method: config.Duration(50 * time.Millisecond)}
			require.NoError(t, b.proxy.Reload(&c))
			b.target.Inject(spdktest.Fault{Method: method, Delay: 4 * time.Second})
			g := b.post(rpcCall(method, params))
			require.Equal(t, http.StatusGatewayTimeout, g.StatusCode, g.body)
			if !strings.HasSuffix(method, "lvstore") {
				b.refusedAsBusy(t, "bdev_lvol_delete", `{"name":"lvs0/s"}`)
			}
			b.refusedAsBusy(t, "bdev_lvol_delete_lvstore", `{"lvs_name":"lvs0"}`)
			require.Eventually(t, func() bool {
				return b.post(rpcCall("bdev_lvol_delete_lvstore", `{"lvs_name":"lvs0"}`)).StatusCode == http.StatusOK
			}, long, 20*time.Millisecond)
		})
	}
}

// The proxy does not inflate two volumes of an lvstore concurrently, because SPDK would skip
// clusters.
func TestInflatedVolumesHaveAllClusters(t *testing.T) {
	b := newBenchWith(t, spdktest.Options{Work: 50 * time.Millisecond})
	b.family(t)
	var all sync.WaitGroup
	for _, volume := range []string{"lvs0/v", "lvs0/c"} {
		all.Go(func() {
			assert.Contains(t, b.post(rpcCall("bdev_lvol_inflate", `{"name":"`+volume+`"}`)).body, `"result":true`)
		})
	}
	all.Wait()
	for _, volume := range []string{"lvs0/v", "lvs0/c"} {
		assert.Contains(t, b.call(t, "bdev_get_bdevs", `{"name":"`+volume+`"}`), `"num_allocated_clusters":2`, volume)
	}
}

// While a shallow copy writes to a volume, no volume in the same lvstore is inflated.
func TestInflationsWaitForShallowCopies(t *testing.T) {
	b := newBenchWith(t, spdktest.Options{Work: 1500 * time.Millisecond})
	b.family(t)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"d","size_in_mib":8,"thin_provision":true}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"copy","lvs_name":"lvs1"}`)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs1","lvol_name":"other","size_in_mib":8}`)
	b.call(t, "bdev_lvol_start_shallow_copy", `{"src_lvol_name":"lvs0/s","dst_bdev_name":"lvs0/d"}`)
	b.call(t, "bdev_lvol_inflate", `{"name":"lvs1/other"}`)
	b.refusedAsBusy(t, "bdev_lvol_inflate", `{"name":"lvs0/c"}`)
}

// Deletions wait for a shallow copy, which continues after SPDK has responded to the call.
func TestDeletionsWaitForShallowCopies(t *testing.T) {
	b := newBenchWith(t, spdktest.Options{Work: 1500 * time.Millisecond})
	b.family(t)
	b.call(t, "bdev_lvol_delete", `{"name":"lvs0/c"}`)
	b.call(t, "bdev_lvol_start_shallow_copy", `{"src_lvol_name":"lvs0/s","dst_bdev_name":"copy"}`)
	b.refusedAsBusy(t, "bdev_lvol_delete", `{"name":"lvs0/s"}`)
	require.Eventually(t, func() bool {
		return b.post(rpcCall("bdev_lvol_delete", `{"name":"lvs0/s"}`)).StatusCode == http.StatusOK
	}, long, 20*time.Millisecond)
	assert.Contains(t, b.call(t, "bdev_lvol_check_shallow_copy", `{"operation_id":1}`), `"complete"`, "the proxy does not read the status, which the client may need")
}

// A deletion waits even if it names the volume by its UUID in capital letters, which SPDK accepts.
func TestDeletionByUUIDInCapitalsWaits(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Target.SnapshotsInUse = config.SnapshotsAllow })
	b.family(t)
	var list []spdkrpc.BdevInfo
	require.NoError(t, json.Unmarshal([]byte(b.call(t, "bdev_get_bdevs", `{"name":"lvs0/v"}`)), &list))
	id := list[0].UUID
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_inflate", Delay: 4 * time.Second})
	done := make(chan string)
	go func() { done <- b.post(rpcCall("bdev_lvol_inflate", `{"name":"lvs0/v"}`)).body }()
	time.Sleep(100 * time.Millisecond)
	for _, name := range []string{"lvs0/v", id, strings.ToUpper(id)} {
		b.refusedAsBusy(t, "bdev_lvol_delete", `{"name":"`+name+`"}`)
	}
	assert.Contains(t, <-done, `"result":true`)
	b.call(t, "bdev_lvol_delete", `{"name":"`+id+`"}`)
}

// A deletion by UUID waits for a call that names the volume by its alias, although that call locks
// only the alias.
func TestDeletionByUUIDWaitsForACallByName(t *testing.T) {
	b := newBench(t, "v26.05")
	b.family(t)
	var list []spdkrpc.BdevInfo
	require.NoError(t, json.Unmarshal([]byte(b.call(t, "bdev_get_bdevs", `{"name":"lvs0/s"}`)), &list))
	release, done := make(chan struct{}), make(chan string)
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_clone", Until: release})
	go func() { done <- b.post(rpcCall("bdev_lvol_clone", `{"snapshot_name":"lvs0/s","clone_name":"d"}`)).body }()
	require.Eventually(t, func() bool { // SPDK refuses to delete a snapshot with two clones
		return b.post(rpcCall("bdev_lvol_delete", `{"name":"`+list[0].UUID+`"}`)).StatusCode == http.StatusTooManyRequests
	}, long, time.Millisecond)
	b.refusedAsBusy(t, "bdev_lvol_delete", `{"name":"`+list[0].UUID+`"}`)
	close(release)
	assert.Contains(t, <-done, `"result"`)
}

// The proxy refuses to rename a snapshot. SPDK would return EPERM, but only after adding the new
// alias to the snapshot's bdev.
func TestSnapshotsAreNotRenamed(t *testing.T) {
	b := newBench(t, "v26.05")
	b.family(t)
	b.target.ForgetCalls()
	assert.Equal(t, jsonrpc.CodeInvalidParams, b.post(rpcCall("bdev_lvol_rename", `{"old_name":"lvs0/s","new_name":"t"}`)).code(t))
	for _, c := range b.target.Calls() {
		assert.NotEqual(t, "bdev_lvol_rename", c.Method)
	}
	assert.Equal(t, -19, b.post(rpcCall("bdev_lvol_rename", `{"old_name":"lvs0/nobody","new_name":"t"}`)).code(t))
	b.call(t, "bdev_lvol_rename_lvstore", `{"old_name":"lvs0","new_name":"lvs1"}`)
	b.call(t, "bdev_lvol_rename", `{"old_name":"lvs1/v","new_name":"w"}`)
	assert.Equal(t, -19, b.post(rpcCall("bdev_lvol_delete_lvstore", `{"lvs_name":"lvs0"}`)).code(t))
	b.call(t, "bdev_lvol_delete_lvstore", `{"lvs_name":"lvs1"}`)
}

// If any RPC of a call that changes volumes fails, the call fails.
func TestChangesFailIfAnyRPCFails(t *testing.T) {
	for method, params := range map[string]string{
		"bdev_lvol_inflate": `{"name":"lvs0/v"}`, "bdev_lvol_decouple_parent": `{"name":"lvs0/v"}`, "bdev_lvol_resize": `{"name":"lvs0/v","size_in_mib":12}`,
		"bdev_lvol_rename": `{"old_name":"lvs0/v","new_name":"w"}`, "bdev_lvol_delete": `{"name":"lvs0/v"}`, "bdev_lvol_set_read_only": `{"name":"lvs0/v"}`,
		"bdev_lvol_snapshot": `{"lvol_name":"lvs0/v","snapshot_name":"t"}`, "bdev_lvol_clone": `{"snapshot_name":"lvs0/s","clone_name":"d"}`,
		"bdev_lvol_rename_lvstore": `{"old_name":"lvs0","new_name":"lvs1"}`, "bdev_lvol_delete_lvstore": `{"lvs_name":"lvs0"}`,
		"spdkgate_lvol_delete": `{"name":"lvs0/v"}`, "spdkgate_lvol_snapshot": `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"t"}]}`,
	} {
		t.Run(method, func(t *testing.T) {
			b := newBench(t, "v26.05")
			b.family(t)
			for skip := 0; ; skip++ {
				b.target.ForgetCalls()
				b.target.Inject(spdktest.Fault{Skip: skip, Do: spdktest.Fail})
				g := b.post(rpcCall(method, params))
				b.target.ClearFaults()
				calls := b.target.Calls()
				i := slices.IndexFunc(calls, func(c spdktest.Call) bool { return c.Err != nil && c.Err.Code == jsonrpc.CodeInternalError })
				if i < 0 {
					assert.Equal(t, http.StatusOK, g.StatusCode, g.body)
					assert.Positive(t, skip)
					return
				}
				assert.Contains(t, g.body, `"error"`, calls[i].Method)
			}
		})
	}
}
