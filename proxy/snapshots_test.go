package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// exported creates a volume in lvs0, and exports it to a connected host.
func (b *bench) exported(t *testing.T, ana bool) (nqn string) {
	t.Helper()
	nqn = "nqn.2016-06.io.spdk:v"
	b.call(t, "bdev_malloc_create", `{"name":"base","num_blocks":65536,"block_size":4096}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs0"}`)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8}`)
	b.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	b.call(t, "nvmf_create_subsystem", fmt.Sprintf(`{"nqn":%q,"ana_reporting":%t}`, nqn, ana))
	b.call(t, "nvmf_subsystem_add_ns", fmt.Sprintf(`{"nqn":%q,"namespace":{"bdev_name":"lvs0/v"}}`, nqn))
	b.call(t, "nvmf_subsystem_add_listener", fmt.Sprintf(`{"nqn":%q,"listen_address":{"trtype":"TCP","traddr":"127.0.0.1","trsvcid":"4420"}}`, nqn))
	require.NoError(t, b.target.ConnectHost(nqn, "nqn.2016-06.io.spdk:host"))
	return nqn
}

func withJournal(t *testing.T) func(*config.Config) {
	dir := filepath.Join(t.TempDir(), "frozen")
	return func(c *config.Config) { c.Target.Freeze.Dir = dir }
}

func rpcCall(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
}

func TestPlainSnapshotsOfVolumesInUseAreRefused(t *testing.T) {
	const straight, safe = `{"lvol_name":"lvs0/v","snapshot_name":"%s"}`, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"%s"}]}`
	b := newBench(t, "v26.05", withJournal(t))
	b.exported(t, true)
	assert.Contains(t, b.call(t, safeSnapshotMethod, fmt.Sprintf(safe, "s1")), `"frozen":true`)
	g := b.post(rpcCall(snapshotMethod, fmt.Sprintf(straight, "s2")))
	assert.Equal(t, http.StatusConflict, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeInUse, g.code(t))
	assert.Contains(t, g.body, safeSnapshotMethod, "the message must name the safe method")

	changed := *b.config
	changed.Target.SnapshotsInUse = config.SnapshotsFreeze
	require.NoError(t, b.proxy.Reload(&changed))
	b.target.ForgetCalls()
	assert.Regexp(t, `^"[0-9a-f-]{36}"$`, b.call(t, snapshotMethod, fmt.Sprintf(straight, "s3")), "the same response as SPDK's")
	frozen := false
	for _, c := range b.target.Calls() {
		frozen = frozen || c.Method == "nvmf_subsystem_set_ns_ana_group"
	}
	assert.True(t, frozen)
	changed.Target.SnapshotsInUse = config.SnapshotsAllow
	require.NoError(t, b.proxy.Reload(&changed))
	b.target.ForgetCalls()
	b.call(t, snapshotMethod, fmt.Sprintf(straight, "s4"))
	assert.Len(t, b.target.Calls(), 1)

	metrics := b.call(t, metricsMethod, "")
	assert.Contains(t, metrics, `spdk_proxy_freeze_duration_seconds_count 2`)
	assert.Contains(t, metrics, `spdk_proxy_snapshots_refused_total 1`)
	line := b.log.Lines(t, "call")[7]
	assert.Equal(t, []any{"bdev:lvs0/v", "lvol-name:s1"}, line["resources"])
}

// The proxy refuses these methods for volumes in use, because SPDK changes the volume without
// waiting for I/O.
func TestUnsafeChangesToVolumesInUseAreRefused(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	nqn := b.exported(t, true)
	for _, s := range []string{"s1", "s2"} {
		b.call(t, safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"`+s+`"}]}`)
	}
	refused := func(method, params, says string) {
		t.Helper()
		b.target.ForgetCalls()
		g := b.post(rpcCall(method, params))
		assert.Equal(t, http.StatusConflict, g.StatusCode, method)
		assert.Equal(t, jsonrpc.CodeInUse, g.code(t))
		assert.Contains(t, g.body, says)
		for _, c := range b.target.Calls() {
			assert.NotEqual(t, method, c.Method)
		}
	}
	below := map[string]string{
		"bdev_lvol_inflate": `{"name":"lvs0/v"}`, "bdev_lvol_decouple_parent": `{"name":"lvs0/v"}`,
		"bdev_lvol_set_parent": `{"lvol_name":"lvs0/v","parent_name":"lvs0/s1"}`, "bdev_lvol_set_parent_bdev": `{"lvol_name":"lvs0/v","parent_name":"base"}`,
	}
	for method, params := range below {
		refused(method, params, "Detach it")
	}
	refused(deleteMethod, `{"name":"lvs0/s2"}`, safeDeleteMethod)
	assert.Contains(t, b.call(t, safeDeleteMethod, `{"name":"lvs0/s2"}`), `"frozen":true`)
	changed := *b.config
	changed.Target.SnapshotsInUse = config.SnapshotsFreeze
	require.NoError(t, b.proxy.Reload(&changed))
	refused("bdev_lvol_inflate", below["bdev_lvol_inflate"], "Detach it")
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"result":true}`, b.post(rpcCall(deleteMethod, `{"name":"lvs0/s1"}`)).body)
	assert.Contains(t, b.call(t, metricsMethod, ""), `spdk_proxy_freeze_duration_seconds_count 4`)

	b.call(t, "nvmf_delete_subsystem", fmt.Sprintf(`{"nqn":%q}`, nqn))
	b.call(t, "bdev_lvol_inflate", below["bdev_lvol_inflate"])
	assert.Contains(t, b.call(t, safeDeleteMethod, `{"name":"lvs0/v"}`), `"frozen":false`)
}

// The proxy returns SPDK's errors for bdev_lvol_snapshot unchanged, whether SPDK refuses this call
// or an earlier call that the proxy makes for it.
func TestSnapshotRefusalsAreReturnedUnchanged(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t), func(c *config.Config) { c.Target.SnapshotsInUse = config.SnapshotsFreeze })
	nqn := b.exported(t, true)
	take := func(name string) *jsonrpc.Error {
		t.Helper()
		g := b.post(rpcCall(snapshotMethod, fmt.Sprintf(`{"lvol_name":"lvs0/v","snapshot_name":%q}`, name)))
		require.Equal(t, http.StatusOK, g.StatusCode, g.body)
		var reply struct{ Error *jsonrpc.Error }
		require.NoError(t, json.Unmarshal([]byte(g.body), &reply))
		return reply.Error
	}
	require.Nil(t, take("taken"))
	fileExists := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "File exists"}
	assert.Equal(t, fileExists, take("taken"), "for a volume that would be frozen")
	b.call(t, "nvmf_delete_subsystem", fmt.Sprintf(`{"nqn":%q}`, nqn))
	assert.Equal(t, fileExists, take("taken"), "for a volume that is not in use")
	for _, method := range []string{"bdev_get_bdevs", "iscsi_get_target_nodes", snapshotMethod} {
		own := &jsonrpc.Error{Code: -12, Message: "Cannot allocate memory"}
		b.target.Inject(spdktest.Fault{Method: method, Do: spdktest.Fail, Error: own})
		assert.Equal(t, own, take("s"), method)
		b.target.ClearFaults()
	}
	unread := gate.AnswerTo(&quiesce.AnswerError{Method: "bdev_get_bdevs", Err: &spdkrpc.Error{Kind: spdkrpc.Failed}})
	assert.Equal(t, http.StatusBadGateway, unread.Status)
	assert.Contains(t, unread.Err.Message, "Nothing was executed")
}

func TestSnapshotsAreRefusedWithoutAJournal(t *testing.T) {
	b := newBench(t, "v26.05")
	b.exported(t, true)
	g := b.post(rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"s"}]}`))
	assert.Equal(t, http.StatusConflict, g.StatusCode)
	assert.Contains(t, g.body, "target.freeze.dir")
	assert.Len(t, b.log.Lines(t, "snapshots of volumes in use are refused: there is no freeze journal. Set target.freeze.dir"), 1, "logged at startup")
	b = newBench(t, "v26.05", withJournal(t))
	assert.Len(t, b.log.Lines(t, "volumes in use can be frozen for snapshots"), 1)
}

// Calls that would change a frozen volume wait until it is thawed.
func TestChangesWaitForASnapshot(t *testing.T) {
	order := callWhileFreezing(t, spdktest.Fault{Method: snapshotMethod, Delay: 200 * time.Millisecond},
		"nvmf_subsystem_remove_listener", `,"listen_address":{"trtype":"TCP","traddr":"127.0.0.1","trsvcid":"4420"}`)
	assert.Equal(t, []string{drainMethod, drainMethod, snapshotMethod, "nvmf_subsystem_remove_listener"}, order)
}

// SPDK does not drain the namespaces of a subsystem that is already paused. Therefore, calls that
// pause a subsystem must wait until the drain has ended, even if they only read.
func TestCallsThatPauseASubsystemWaitForTheDrain(t *testing.T) {
	for _, method := range []string{"nvmf_subsystem_get_listeners", "nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs"} {
		t.Run(method, func(t *testing.T) {
			order := callWhileFreezing(t, spdktest.Fault{Method: drainMethod, Delay: 200 * time.Millisecond}, method, "")
			require.NotEmpty(t, order)
			assert.Equal(t, []string{drainMethod, drainMethod}, order[:2])
			assert.Contains(t, order, method)
		})
	}
}

const drainMethod = "nvmf_subsystem_set_ns_ana_group"

// callWhileFreezing calls a method for a volume's subsystem once the volume's paths have become
// inaccessible for a snapshot. It returns, in order, later calls of this method, and the calls that
// drain the volume and take the snapshot.
func callWhileFreezing(t *testing.T, fault spdktest.Fault, method, params string) (order []string) {
	t.Helper()
	b := newBench(t, "v26.05", withJournal(t))
	nqn := b.exported(t, true)
	b.target.ForgetCalls()
	b.target.Inject(fault)
	done := make(chan got)
	go func() {
		done <- b.post(rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"s"}]}`))
	}()
	require.Eventually(t, func() bool {
		return frozenAt(b.target.Calls()) > 0
	}, long, time.Millisecond)
	b.call(t, method, fmt.Sprintf(`{"nqn":%q%s}`, nqn, params))
	require.Equal(t, http.StatusOK, (<-done).StatusCode)
	calls := b.target.Calls()
	for _, c := range calls[frozenAt(calls):] {
		if c.Method == snapshotMethod || c.Method == drainMethod || c.Method == method {
			order = append(order, c.Method)
		}
	}
	return order
}

// frozenAt returns the index after the first call that makes a path inaccessible, or 0.
func frozenAt(calls []spdktest.Call) int {
	return 1 + slices.IndexFunc(calls, func(c spdktest.Call) bool { return c.Params["ana_state"] == "inaccessible" })
}

// A tenant can take snapshots only of its own volumes. The snapshots count against the tenant's
// quota.
func TestTenantsCanSnapshotOnlyTheirOwnVolumes(t *testing.T) {
	b := newTenantBench(t, withJournal(t), func(c *config.Config) {
		c.Roles["volumes"] = config.Role{Allow: append(rules(safeSnapshotMethod), c.Roles["volumes"].Allow...)}
		a := c.Tenants["team-a"]
		a.Quota.Volumes = new(3)
		c.Tenants["team-a"] = a
	})
	for _, team := range []string{"a", "b"} {
		b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-`+team+`","lvol_name":"v","size_in_mib":8}`, http.StatusOK)
	}
	take := func(list string, status int) got {
		t.Helper()
		return b.as(t, teamA, safeSnapshotMethod, `{"snapshots":[`+list+`]}`, status)
	}
	foreign, nobody := take(`{"lvol_name":"lvs-b/v","snapshot_name":"s"}`, http.StatusOK), take(`{"lvol_name":"lvs-a/none","snapshot_name":"s"}`, http.StatusOK)
	assert.Equal(t, -19, foreign.code(t))
	assert.Equal(t, foreign.body, nobody.body, "the same response as for a missing volume")
	mixed := take(`{"lvol_name":"lvs-a/v","snapshot_name":"s0"},{"lvol_name":"lvs-b/v","snapshot_name":"s0"}`, http.StatusOK)
	assert.Equal(t, foreign.body, mixed.body, "each volume of a list counts")
	assert.Equal(t, -19, b.as(t, "admin", "bdev_get_bdevs", `{"name":"lvs-a/s0"}`, http.StatusOK).code(t), "nothing was taken")
	assert.Contains(t, take(`{"lvol_name":"lvs-a/v","snapshot_name":"s1","nqn":"nqn.2016-06.io.spdk:of-b"}`, http.StatusOK).body, `"frozen":false`)
	assert.Contains(t, take(`{"lvol_name":"lvs-a/v","snapshot_name":"s2"}`, http.StatusOK).body, `"uuid"`)
	take(`{"lvol_name":"lvs-a/v","snapshot_name":"s3"}`, http.StatusInsufficientStorage)
	b.as(t, "admin", "bdev_lvol_delete", `{"name":"lvs-a/s1"}`, http.StatusOK)
	require.Eventually(t, func() bool {
		g := b.do("POST", "/", teamA, adminPassword, strings.NewReader(rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs-a/v","snapshot_name":"s3"}]}`)))
		return g.StatusCode == http.StatusOK
	}, long, 100*time.Millisecond)
}

// Both a starting proxy and `spdk-proxy thaw` thaw volumes that another proxy has left frozen.
func TestFrozenVolumesAreThawedAtTheStart(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	nqn := b.exported(t, true)
	// Simulate a target that does not respond to the thaw, and prevent other processes from
	// retrying the thaw.
	b.target.Inject(spdktest.Fault{Method: "nvmf_subsystem_listener_set_ana_state", Skip: 1, Do: spdktest.Close})
	b.call(t, safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"s"}]}`)
	frozen := func() bool {
		return strings.Contains(b.call(t, "nvmf_subsystem_get_listeners", fmt.Sprintf(`{"nqn":%q}`, nqn)), `"inaccessible"`)
	}
	require.True(t, frozen())
	left, err := execute.Thaw(context.Background(), b.config.Target.Freeze.Dir, b.proxy.log)
	require.NoError(t, err)
	assert.Zero(t, left)
	assert.False(t, frozen())
	list, err := os.ReadDir(b.config.Target.Freeze.Dir)
	require.NoError(t, err)
	assert.Len(t, list, 1, "the operation that the running proxy recovers")
	b.proxy.execute.Recover(context.Background())
	assert.Contains(t, b.call(t, metricsMethod, ""), `spdk_proxy_thaws_by_recovery_total 1`)
}

// Before v24.09, a listing during a deletion crashes the target. Therefore, deletions by the proxy
// itself (of snapshots of frozen volumes, and of snapshots that it undoes) never run concurrently
// with listings.
func TestDeletionsByTheProxyDoNotOverlapListings(t *testing.T) {
	const two = `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"s2"},{"lvol_name":"lvs0/w","snapshot_name":"s3"}]}`
	for name, c := range map[string]struct {
		call   string
		faults []spdktest.Fault
	}{
		"frozen": {call: rpcCall(safeDeleteMethod, `{"name":"lvs0/s1"}`)},
		"undone": {call: rpcCall(safeSnapshotMethod, two), faults: []spdktest.Fault{{Method: snapshotMethod, Skip: 1, Do: spdktest.Fail}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "v24.01", withJournal(t))
			b.exported(t, true)
			b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"w","size_in_mib":8}`)
			b.call(t, safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"s1"}]}`)
			for _, f := range append(c.faults, spdktest.Fault{Method: deleteMethod, Delay: 300 * time.Millisecond}) {
				b.target.Inject(f)
			}
			b.target.ForgetCalls()
			position := func(method string) int {
				return slices.IndexFunc(b.target.Calls(), func(c spdktest.Call) bool { return c.Method == method })
			}
			done := make(chan string, 1)
			go func() { done <- b.post(c.call).body }()
			require.Eventually(t, func() bool { return position("nvmf_subsystem_add_ns") >= 0 }, time.Minute, time.Millisecond, "the volume is frozen, and the deletion is next")
			b.call(t, "bdev_lvol_get_lvols", "{}")
			<-done
			require.NotEqual(t, -1, position(deleteMethod))
			assert.Less(t, position(deleteMethod), position("bdev_lvol_get_lvols"))
		})
	}
}

// A tenant can delete only its own volumes, even with the proxy's own method. Deleted volumes no
// longer count against the quota.
func TestTenantsCanDeleteOnlyTheirOwnVolumes(t *testing.T) {
	b := newTenantBench(t, withJournal(t), func(c *config.Config) {
		c.Roles["volumes"] = config.Role{Allow: append(rules(safeDeleteMethod), c.Roles["volumes"].Allow...)}
		a := c.Tenants["team-a"]
		a.Quota.Volumes = new(1)
		c.Tenants["team-a"] = a
	})
	id := map[string]string{}
	for _, team := range []string{"a", "b"} {
		id[team] = resultText(t, b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-`+team+`","lvol_name":"v","size_in_mib":8}`, http.StatusOK))
	}
	remove := func(name string) got {
		t.Helper()
		return b.as(t, teamA, safeDeleteMethod, fmt.Sprintf(`{"name":%q}`, name), http.StatusOK)
	}
	nobody := remove("lvs-a/none")
	assert.Equal(t, -19, nobody.code(t))
	b.target.ForgetCalls()
	for _, foreign := range []string{"lvs-b/v", id["b"], strings.ToUpper(id["b"]), "Baseb"} {
		assert.Equal(t, nobody.body, remove(foreign).body, "as if the volume did not exist: %s", foreign)
	}
	for _, c := range b.target.Calls() {
		if c.Method == deleteMethod {
			assert.NotNil(t, c.Err, "the call names an object that does not exist: %v", c.Params)
		}
	}
	assert.Contains(t, b.as(t, "admin", "bdev_get_bdevs", `{"name":"lvs-b/v"}`, http.StatusOK).body, id["b"], "the volume still exists")
	const another = `{"lvs_name":"lvs-a","lvol_name":"w","size_in_mib":8}`
	b.as(t, teamA, "bdev_lvol_create", another, http.StatusInsufficientStorage)
	assert.Contains(t, remove("lvs-a/v").body, `"frozen":false`)
	b.as(t, teamA, "bdev_lvol_create", another, http.StatusOK)
	assert.Contains(t, remove("lvs-a/w").body, `"frozen":false`)
}
