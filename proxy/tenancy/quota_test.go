package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const mib = 1 << 20

// emptyWorld creates a target with an empty lvstore that belongs to red, which has a quota.
func emptyWorld(t *testing.T, release string, q Quota) *world {
	w := newWorld(t, release, func(red *Tenant) { red.Quota, red.Allow = q, []string{AnySize} })
	w.must("", "bdev_malloc_create", p{"name": "Base", "num_blocks": 131072, "block_size": 4096})
	w.must("", "bdev_lvol_create_lvstore", p{"bdev_name": "Base", "lvs_name": "lvs-red"})
	return w
}

func (w *world) create(name string, size int) error {
	_, err := w.call("alice", "bdev_lvol_create", p{"lvol_name": name, "size_in_mib": size, "lvs_name": "lvs-red", "thin_provision": true})
	return err
}

func TestByteQuotaCountsWholeClusters(t *testing.T) {
	for _, release := range []string{"v26.05", "v23.01"} {
		t.Run(release, func(t *testing.T) {
			w := emptyWorld(t, release, Quota{Bytes: 64 * mib})
			exceeded := func(err error, used, asked uint64) {
				t.Helper()
				assert.Equal(t, &QuotaError{Tenant: "red", What: "bytes", Used: used * mib, Asked: asked * mib, Most: 64 * mib}, err)
			}
			call := func(method string, params p) error { _, err := w.call("alice", method, params); return err }
			require.NoError(t, w.create("a", 9)) // 12 MiB in whole clusters
			exceeded(w.create("b", 53), 12, 56)
			require.NoError(t, w.create("b", 20))
			exceeded(call("bdev_lvol_resize", p{"name": "lvs-red/a", "size_in_mib": 45}), 32, 36)
			require.NoError(t, call("bdev_lvol_resize", p{"name": "lvs-red/a", "size_in_mib": 16}))
			exceeded(call("bdev_lvol_resize", p{"name": "lvs-red/a", "size_in_mib": 1 << 43}), 36, 1<<43-16)
			require.NoError(t, call("bdev_lvol_snapshot", p{"lvol_name": "lvs-red/b", "snapshot_name": "s"})) // 56
			exceeded(call("bdev_lvol_clone", p{"snapshot_name": "lvs-red/s", "clone_name": "c"}), 56, 20)
			// The space of deleted volumes is available again. The other volumes can still be
			// shrunk and listed.
			require.NoError(t, call("bdev_lvol_delete", p{"name": "lvs-red/a"}))
			require.NoError(t, call("bdev_lvol_clone", p{"snapshot_name": "lvs-red/s", "clone_name": "c"}))
			exceeded(w.create("d", 8), 60, 8)
			require.ErrorIs(t, call("bdev_lvol_clone", p{"snapshot_name": "lvs-red/none", "clone_name": "x"}), spdkrpc.NoSuchDevice)
			require.ErrorIs(t, call("bdev_lvol_resize", p{"name": "lvs-red/none", "size_in_mib": 1}), spdkrpc.NoSuchDevice)
		})
	}
}

// If a tenant already exceeds its quota, calls that use no additional space still succeed.
func TestExceededQuotaAllowsCallsThatUseNoSpace(t *testing.T) {
	q := Quota{Bytes: 10, Volumes: 1, Subsystems: 3}
	used := amount{bytes: 20, volumes: 2, subsystems: 2}
	require.NoError(t, q.allows("red", used, amount{subsystems: 1}))
	require.NoError(t, q.allows("red", used, amount{}))
	assert.Equal(t, &QuotaError{Tenant: "red", What: "bytes", Used: 20, Asked: 1, Most: 10}, q.allows("red", used, amount{bytes: 1}))
	assert.Equal(t, &QuotaError{Tenant: "red", What: "volumes", Used: 2, Asked: 1, Most: 1}, q.allows("red", used, amount{volumes: 1}))
}

func TestQuotaRefusesUnmeasurableCalls(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 1})
	_, err := w.call("alice", "bdev_malloc_create", p{"name": "red-x", "num_blocks": 8, "block_size": 512})
	var refused *Refusal
	require.ErrorAs(t, err, &refused)
}

// According to the schema, every method that creates a volume or may grow a volume is measured.
func TestMethodsThatUseSpaceAreMeasured(t *testing.T) {
	w := newWorld(t, "v26.05")
	for _, m := range rpcschema.Default().Methods() {
		if w.tenancy.plans.Of(m.Name).Volume {
			assert.Contains(t, sizedBy, m.Name)
		}
		for _, param := range m.Params {
			if strings.Contains(param.Name, "size") && param.Schema.Unit == "MiB" && w.tenancy.plans.Of(m.Name).Refusal == "" && sizedBy[m.Name] == (sizing{}) && m.Name != "bdev_lvol_create" {
				assert.True(t, plan.Resizes(m.Name), m.Name)
			}
		}
	}
	for name, by := range sizedBy {
		m, ok := rpcschema.Default().Method(name)
		require.True(t, ok)
		for _, param := range []string{by.source, by.volume, by.list} {
			if by.list != "" && param == by.source {
				continue // a member of list items
			}
			if param != "" {
				require.NotNil(t, m.Param(param), "%s %s", name, param)
			}
		}
	}
}

func TestSubsystemQuotaIsEnforced(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Subsystems: 2})
	create := func(name string) error {
		_, err := w.call("alice", "nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:red-" + name})
		return err
	}
	w.must("bob", "nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:blue-1"})
	require.NoError(t, create("1"))
	require.NoError(t, create("2"))
	var over *QuotaError
	require.ErrorAs(t, create("3"), &over)
	assert.Equal(t, "subsystems", over.What)
	w.must("alice", "nvmf_delete_subsystem", p{"nqn": "nqn.2016-06.io.spdk:red-1"})
	require.NoError(t, create("3"))
}

// However many calls run concurrently, only calls within the quota are executed.
func TestConcurrentCreatesDoNotExceedQuota(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 5, Bytes: 1 << 40})
	var made atomic.Int32
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			err := w.create(fmt.Sprint("v", i), 4)
			var over *QuotaError
			if err == nil {
				made.Add(1)
			} else {
				assert.ErrorAs(t, err, &over)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 5, made.Load())
}

// A call with an unknown outcome counts as if it could still be executed.
func TestCallsWithUnknownOutcomeCount(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 1})
	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(p{"lvol_name": "x", "size_in_mib": 4, "lvs_name": "lvs-red"})
	require.NoError(t, err)
	grant, err := w.tenancy.Of("alice").Admit(t.Context(), m, params, w.ask)
	require.NoError(t, err)
	_, err = grant.Answer(t.Context(), nil, &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown})
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	grant.Close()
	var over *QuotaError
	require.ErrorAs(t, w.create("y", 4), &over)

	defer func() { now = time.Now }()
	now = func() time.Time { return time.Now().Add(unansweredKeep + time.Second) }
	require.NoError(t, w.create("y", 4))
}

// A failed call uses no quota. A call stops waiting when its client disconnects.
func TestFailedCallsUseNoQuota(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 1})
	require.NoError(t, w.create("a", 4))
	w.must("alice", "bdev_lvol_delete", p{"name": "lvs-red/a"})
	_, err := w.call("alice", "bdev_lvol_create", p{"lvol_name": "a", "size_in_mib": 1 << 40, "lvs_name": "lvs-red"})
	require.Error(t, err)
	require.NoError(t, w.create("b", 4))

	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(p{"lvol_name": "x", "size_in_mib": 4, "lvs_name": "lvs-red"})
	require.NoError(t, err)
	w.must("alice", "bdev_lvol_delete", p{"name": "lvs-red/b"})
	first, err := w.tenancy.Of("alice").Admit(t.Context(), m, params, w.ask)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.tenancy.Of("alice").Admit(ctx, m, params, w.ask)
	require.ErrorIs(t, err, context.Canceled)
	_, err = first.Answer(t.Context(), nil, errors.New("was not sent"))
	require.Error(t, err)
	first.Close()
	require.NoError(t, w.create("x", 4))
}

// A reload of the configuration preserves the counts.
func TestReloadsPreserveQuotaCounts(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 1})
	old := w.tenancy
	red := redTenant()
	red.Quota = Quota{Volumes: 2}
	next, err := New([]Tenant{red}, map[string]string{"alice": "red"}, rpcschema.Default(), old)
	require.NoError(t, err)
	assert.Same(t, old.Of("alice").volumes, next.Of("alice").volumes)
	assert.Nil(t, next.Of("bob"))
}

// If the owner of an object cannot be determined, the call is not executed.
func TestCallsWithUnknownOwnersAreRefused(t *testing.T) {
	w := newWorld(t, "v26.05")
	m, _ := rpcschema.Default().Method("bdev_lvol_delete")
	failing := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return nil, &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}
	}
	_, err := w.tenancy.Of("alice").Admit(t.Context(), m, p{"name": "11111111-2222-4333-8444-555555555555"}, failing)
	require.ErrorIs(t, err, spdkrpc.Unreachable, "the call itself was not sent")
	require.NotErrorIs(t, err, spdkrpc.OutcomeUnknown)
}

// Like the configuration, error messages state the quota in GiB. They must not round sizes that are
// not a whole number of GiB.
func TestQuotaErrorsUseTheConfiguredUnit(t *testing.T) {
	assert.EqualError(t, &QuotaError{Tenant: "a", What: "bytes", Most: 100 << 30, Used: 99<<30 + 512<<20, Asked: 1 << 30},
		"tenant a: the quota is 100 GiB, of which 101888 MiB are used, and this call needs 1 GiB more: delete volumes or snapshots, or ask the administrator of this proxy for a larger quota (quota.gib)")
	assert.EqualError(t, &QuotaError{Tenant: "a", What: "bytes", Most: 1 << 30, Asked: 1<<30 + 512},
		"tenant a: the quota is 1 GiB, of which 0 bytes are used, and this call needs 1073742336 bytes more: delete volumes or snapshots, or ask the administrator of this proxy for a larger quota (quota.gib)")
	assert.EqualError(t, &QuotaError{Tenant: "a", What: "hosts", Most: 2, Used: 2, Asked: 1},
		"tenant a: the quota is 2 hosts, of which 2 are used, and this call needs 1 more: remove hosts that no longer need their volumes (nvmf_subsystem_remove_host), or ask the administrator of this proxy for a larger quota (quota.hosts)")
	for _, b := range (Quota{}).with(amount{}, amount{}) {
		assert.Contains(t, freedBy, b.name)
	}
}
