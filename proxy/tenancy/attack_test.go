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

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// atTime stops the package's clock until the test ends. pass advances the clock.
func atTime(t *testing.T) (pass func(time.Duration)) {
	var passed atomic.Int64
	begun := time.Now()
	now = func() time.Time { return begun.Add(time.Duration(passed.Load())) }
	t.Cleanup(func() { now = time.Now })
	return func(d time.Duration) { passed.Add(int64(d)) }
}

// asked returns how many queries package tenancy itself makes while f is running.
func (w *world) asked(f func()) int {
	before := len(w.asks)
	f()
	return len(w.asks) - before
}

// However a client spells another tenant's name, the response is the same as for an unused name.
func TestSpellingsOfForeignNamesAreTreatedAsUnused(t *testing.T) {
	for _, release := range []string{"v26.05", "v24.01"} {
		w := newWorld(t, release)
		_, blue := w.settle()
		before := w.stateOf(blue)
		for method, with := range map[string]func(name string) p{
			"bdev_get_bdevs":         func(name string) p { return p{"name": name} },
			"bdev_lvol_delete":       func(name string) p { return p{"name": name} },
			"bdev_lvol_resize":       func(name string) p { return p{"name": name, "size_in_mib": 4} },
			"bdev_lvol_snapshot":     func(name string) p { return p{"lvol_name": name, "snapshot_name": "x"} },
			"bdev_lvol_get_lvols":    func(name string) p { return p{"lvs_name": name} },
			"nvmf_get_subsystems":    func(name string) p { return p{"nqn": name} },
			"nvmf_delete_subsystem":  func(name string) p { return p{"nqn": name} },
			"bdev_get_iostat":        func(name string) p { return p{"name": name} },
			"iscsi_get_target_nodes": func(name string) p { return p{"name": name} },
		} {
			for _, name := range blue.secrets() {
				for i, spell := range spellings {
					theirs, theirsErr := w.call("alice", method, with(spell(name)))
					nobodys, nobodysErr := w.call("alice", method, with(spell(gone(name))))
					var invalid rpcschema.Violations
					if errors.As(theirsErr, &invalid) {
						require.ErrorAs(t, nobodysErr, &invalid)
						continue
					}
					where := fmt.Sprintf("%s %s %q (%d)", release, method, spell(name), i)
					require.Equal(t, outcome(nobodys, nobodysErr, spell(gone(name))), outcome(theirs, theirsErr, spell(name)), where)
					for _, secret := range []string{blue.volume, "lvs-blue/vol", blue.mallocUUID} {
						require.NotContains(t, string(theirs), secret, where)
					}
				}
			}
		}
		assert.Equal(t, before, w.stateOf(blue))
	}
}

// The proxy looks up the owner of a tenant's own volume once. For another tenant's volume, a
// missing volume, or a different spelling of the tenant's own volume, it looks up the owner on
// every call.
func TestOwnersAreCached(t *testing.T) {
	pass := atTime(t)
	w := newWorld(t, "v26.05")
	red, blue := w.settle()
	limit := func(name string) func() {
		return func() { _, _ = w.call("alice", "bdev_get_bdevs", p{"name": name}) }
	}
	assert.Equal(t, 4, w.asked(limit(red.volume)), "the lvstores, their two bases, and the bdev")
	assert.Zero(t, w.asked(limit(red.volume)))
	change := func() { _, _ = w.call("alice", "bdev_set_qos_limit", p{"name": red.volume, "rw_ios_per_sec": 1000}) }
	assert.Equal(t, 1, w.asked(change), "a call that changes a bdev looks it up")
	pass(storesKeep)
	assert.Equal(t, 3, w.asked(limit(red.volume)), "the lvstores")

	_, _ = w.call("bob", "bdev_get_bdevs", p{"name": blue.volume}) // now the volume is also cached
	none := w.asked(limit("11111111-2222-4333-8444-555555555555"))
	assert.NotZero(t, none)
	assert.Equal(t, none, w.asked(limit(blue.volume)))
	assert.Equal(t, none, w.asked(limit(strings.ToUpper(red.volume))), "SPDK has no bdev with this name")

	pass(3 * volumesKeep)
	assert.Equal(t, 4, w.asked(limit(red.volume)), "the owner is no longer cached")
}

// After a volume's lvstore has been given to another tenant, the volume's cached owner is not used.
func TestCachedOwnerIsNotUsedAfterTheLvstoreMoves(t *testing.T) {
	pass := atTime(t)
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	w.must("alice", "bdev_get_bdevs", p{"name": red.volume})
	w.must("", "bdev_lvol_rename_lvstore", p{"old_name": "lvs-red", "new_name": "lvs-nobody"})
	pass(storesKeep)
	_, err := w.call("alice", "bdev_get_bdevs", p{"name": red.volume})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	assert.Contains(t, string(w.must("alice", "bdev_get_bdevs", nil)), "red-malloc")
	assert.NotContains(t, string(w.must("alice", "bdev_get_bdevs", nil)), red.volume)

	// A rename by the tenant takes effect immediately.
	w.must("", "bdev_lvol_rename_lvstore", p{"old_name": "lvs-nobody", "new_name": "lvs-red"})
	pass(storesKeep)
	w.must("alice", "bdev_lvol_rename_lvstore", p{"old_name": "lvs-red", "new_name": "lvs-red2"})
	assert.Contains(t, string(w.must("alice", "bdev_lvol_get_lvstores", nil)), "lvs-red2")
	w.must("alice", "bdev_get_bdevs", p{"name": red.volume})
}

// Concurrent calls share a look-up of the lvstores, even if the call that started the look-up is
// canceled.
func TestConcurrentLookupsAreShared(t *testing.T) {
	var s stores
	var put atomic.Int32
	begun, answer := make(chan struct{}, 64), make(chan struct{})
	ask := func(ctx context.Context, _ string, _ map[string]any) (json.RawMessage, error) {
		put.Add(1)
		begun <- struct{}{}
		select {
		case <-answer:
			return json.RawMessage(`[{"uuid":"` + redStore + `","name":"lvs-red"}]`), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	leaving, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		_, err := s.list(leaving, ask, time.Time{})
		assert.ErrorIs(t, err, context.Canceled)
	})
	<-begun
	for range 8 {
		all.Go(func() {
			list, err := s.list(t.Context(), ask, time.Time{})
			assert.NoError(t, err)
			assert.Equal(t, "lvs-red", list[redStore].Name)
		})
	}
	leave()
	<-begun
	close(answer)
	all.Wait()
	assert.LessOrEqual(t, put.Load(), int32(3))

	// A call does not use a look-up that began before the call arrived.
	put.Store(0)
	_, err := s.list(t.Context(), ask, now())
	require.NoError(t, err)
	assert.EqualValues(t, 1, put.Load())
	_, err = s.list(t.Context(), ask, time.Time{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, put.Load())
}

// A list with many unknown names causes a single look-up.
func TestNamesInAListShareALookup(t *testing.T) {
	const prefix = "nqn.2020-04.io.spdk.csi:uuid:"
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN = prefix })
	red, blue := w.settle()
	w.must("", "nvmf_create_subsystem", p{"nqn": prefix + red.volume})
	w.must("", "nvmf_create_subsystem", p{"nqn": prefix + blue.volume})
	var listed string
	list := func() { listed = string(w.must("alice", "nvmf_get_subsystems", nil)) }
	list()
	assert.Contains(t, listed, prefix+red.volume)
	assert.NotContains(t, listed, blue.volume)
	assert.Zero(t, w.asked(list), "the owners of all volumes are cached now")
	for i := range 20 {
		w.must("", "nvmf_create_subsystem", p{"nqn": fmt.Sprintf("%s99999999-0000-4000-8000-%012x", prefix, i)})
	}
	assert.Equal(t, 1, w.asked(list))
	assert.NotContains(t, listed, "99999999")
}

// Decisions about changes to a subsystem named after a volume do not use the volume's cached owner.
func TestChangesToSubsystemsIgnoreCachedOwners(t *testing.T) {
	const prefix = "nqn.2020-04.io.spdk.csi:uuid:"
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN = prefix })
	red, _ := w.settle()
	w.must("alice", "bdev_get_bdevs", p{"name": red.volume})
	// by a client that bypasses the proxy
	_, err := w.raw(t.Context(), "bdev_lvol_delete", p{"name": red.volume})
	require.NoError(t, err)
	w.must("", "nvmf_create_subsystem", p{"nqn": prefix + red.volume})
	before := w.must("", "nvmf_get_subsystems", nil)
	_, err = w.call("alice", "nvmf_delete_subsystem", p{"nqn": prefix + red.volume})
	require.Error(t, err)
	assert.Equal(t, before, w.must("", "nvmf_get_subsystems", nil))
}

// A parameter that the schema does not describe is rejected, even if its value is the tenant's own
// name.
func TestParametersMissingFromTheSchemaAreRejected(t *testing.T) {
	schema, err := rpcschema.Load([]byte(`{"methods":[{"name":"m","x-spdk-state":["runtime"],"x-spdk-mutates":true,"params":[
		{"name":"bdev","required":true,"schema":{"type":"string","x-spdk-resource":"bdev"}},
		{"name":"list","schema":{"type":"array"}},{"name":"open","schema":{"type":"object","additionalProperties":true}}],
		"result":{"name":"r","schema":{"type":"boolean"}}}]}`))
	require.NoError(t, err)
	tenancy, err := New([]Tenant{redTenant()}, map[string]string{"alice": "red"}, schema, nil)
	require.NoError(t, err)
	m, _ := schema.Method("m")
	admit := func(params p) error {
		_, err := tenancy.Of("alice").Admit(t.Context(), m, params, oracle)
		return err
	}
	require.NoError(t, admit(p{"bdev": "red-1", "list": []any{}}))
	var refused *Refusal
	require.ErrorAs(t, admit(p{"bdev": "red-1", "list": []any{"blue-1"}}), &refused)
	require.ErrorAs(t, admit(p{"bdev": "red-1", "open": p{"x": "blue-1"}}), &refused)
	require.Error(t, admit(p{"bdev": "red-1", "other": "blue-1"}))
}

// A subsystem named after a volume still counts against the quota after the volume has been
// deleted.
func TestSubsystemsCountAgainstTheQuotaAfterVolumeDeletion(t *testing.T) {
	const prefix = "nqn.2020-04.io.spdk.csi:uuid:"
	pass := atTime(t)
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN, red.Quota.Subsystems = prefix, 4 })
	w.settle() // uses two, one for NVMe and one for iSCSI
	makes := func() error {
		volume := text(t, w.must("alice", "bdev_lvol_create", p{"lvol_name": "new", "size_in_mib": 4, "lvs_name": "lvs-red"}))
		_, err := w.call("alice", "nvmf_create_subsystem", p{"nqn": prefix + volume})
		w.must("alice", "bdev_lvol_delete", p{"name": volume})
		pass(time.Minute)
		return err
	}
	require.NoError(t, makes())
	require.NoError(t, makes())
	var over *QuotaError
	require.ErrorAs(t, makes(), &over)
	assert.Equal(t, &QuotaError{Tenant: "red", What: "subsystems", Used: 4, Asked: 1, Most: 4}, over)
}

// The origin of a clone must not grow between the measurement of its size and the call that creates
// the clone.
func TestOriginsOfClonesKeepTheirSize(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	w.must("", "bdev_null_create", p{"name": "red-origin", "num_blocks": 8192, "block_size": 512})
	_, err := w.call("alice", "bdev_null_resize", p{"name": "red-origin", "new_size": 1024})
	var refused *Refusal
	require.ErrorAs(t, err, &refused)
}

// An lvstore that was deleted and recreated under the same name may have a different cluster size.
// A call whose volume was measured with the old cluster size is not executed in the new lvstore.
func TestVolumesAreCreatedInTheMeasuredLvstore(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	require.NoError(t, w.create("a", 4))
	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(p{"lvol_name": "x", "size_in_mib": 1, "lvs_name": "lvs-red"})
	require.NoError(t, err)
	grant, err := w.tenancy.Of("alice").Admit(t.Context(), m, params, w.ask)
	require.NoError(t, err)
	w.must("", "bdev_lvol_delete_lvstore", p{"lvs_name": "lvs-red"})
	w.must("", "bdev_lvol_create_lvstore", p{"bdev_name": "Base", "lvs_name": "lvs-red", "cluster_sz": 128 * mib})
	result, err := w.raw(t.Context(), "bdev_lvol_create", grant.Params)
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	_, err = grant.Answer(t.Context(), result, err)
	require.Error(t, err)
	grant.Close()
}

// After a reload that gives a tenant another lvstore, the tenant's usage is counted again.
func TestReloadsCountUsageAgain(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 3})
	require.NoError(t, w.create("a", 4))
	for _, name := range []string{"1", "2"} {
		w.must("alice", "nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:red-" + name})
	}
	red := redTenant()
	red.Quota = Quota{Volumes: 3, Subsystems: 2}
	var err error
	w.tenancy, err = New([]Tenant{red, blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), w.tenancy)
	require.NoError(t, err)
	_, err = w.call("alice", "nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:red-3"})
	var over *QuotaError
	require.ErrorAs(t, err, &over)
}
