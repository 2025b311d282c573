package tenancy

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (w *world) usage(scopes ...*Scope) []Usage {
	w.t.Helper()
	used, err := w.tenancy.Usage(w.t.Context(), w.ask, scopes...)
	require.NoError(w.t, err)
	return used
}

// For each limit of the quota, Usage returns the amount stated in the error for a refused call.
func TestUsageEqualsTheAmountInRefusals(t *testing.T) {
	for _, release := range []string{"v26.05", "v23.01"} {
		t.Run(release, func(t *testing.T) {
			q := Quota{Bytes: 64 * mib, Volumes: 3, Subsystems: 2, Hosts: 2, Listeners: 1}
			w := emptyWorld(t, release, q)
			w.must("", "nvmf_create_transport", p{"trtype": "TCP"})
			const nqn = "nqn.2016-06.io.spdk:red-1"
			require.NoError(t, w.create("a", 9)) // 12 MiB in whole clusters
			w.must("alice", "nvmf_create_subsystem", p{"nqn": nqn})
			w.must("alice", "nvmf_create_subsystem", p{"nqn": nqn + "2"})
			w.must("alice", "nvmf_subsystem_add_host", p{"nqn": nqn, "host": redHost})
			w.must("alice", "nvmf_subsystem_add_host", p{"nqn": nqn + "2", "host": redHost})
			w.must("alice", "nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
			red := w.tenancy.Of("alice")
			used := w.usage(red)
			assert.Equal(t, []Usage{{Bytes: 12 * mib, Volumes: 1, Subsystems: 2, Hosts: 2, Listeners: 1}}, used)

			refused := func(method string, params p) *QuotaError {
				_, err := w.call("alice", method, params)
				var over *QuotaError
				require.ErrorAs(t, err, &over, method)
				return over
			}
			assert.Equal(t, used[0].Bytes, refused("bdev_lvol_create", p{"lvol_name": "b", "size_in_mib": 64, "lvs_name": "lvs-red"}).Used)
			assert.Equal(t, used[0].Subsystems, refused("nvmf_create_subsystem", p{"nqn": nqn + "3"}).Used)
			assert.Equal(t, used[0].Hosts, refused("nvmf_subsystem_add_host", p{"nqn": nqn, "host": redHost + "1"}).Used)
			assert.Equal(t, used[0].Listeners, refused("nvmf_subsystem_add_listener", p{"nqn": nqn + "2", "listen_address": p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}}).Used)
			require.NoError(t, w.create("b", 4))
			require.NoError(t, w.create("c", 4))
			used = w.usage(red)
			assert.Equal(t, Usage{Bytes: 20 * mib, Volumes: 3, Subsystems: 2, Hosts: 2, Listeners: 1}, used[0])
			assert.Equal(t, used[0].Volumes, refused("bdev_lvol_create", p{"lvol_name": "d", "size_in_mib": 4, "lvs_name": "lvs-red"}).Used)

			// Usage immediately reflects changes that an administrator makes to the tenant's
			// objects.
			w.must("", "bdev_lvol_delete", p{"name": "lvs-red/b"})
			assert.EqualValues(t, 2, w.usage(red)[0].Volumes)
		})
	}
}

// Like quota checks, Usage counts calls with an unknown outcome. It does not change any state on
// which quota checks depend.
func TestUsageCountsCallsThatMayStillBeExecuted(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 2})
	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(p{"lvol_name": "x", "size_in_mib": 4, "lvs_name": "lvs-red"})
	require.NoError(t, err)
	red := w.tenancy.Of("alice")
	grant, err := red.Admit(t.Context(), m, params, w.ask)
	require.NoError(t, err)
	assert.EqualValues(t, 1, w.usage(red)[0].Volumes, "the running call")
	_, err = grant.Answer(t.Context(), nil, &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown})
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	grant.Close()
	assert.EqualValues(t, 1, w.usage(red)[0].Volumes, "the lost call")
	require.NoError(t, w.create("y", 4))
	var over *QuotaError
	require.ErrorAs(t, w.create("z", 4), &over)
	assert.EqualValues(t, 2, over.Used)
	assert.EqualValues(t, 2, w.usage(red)[0].Volumes)
}

// Usage makes no more calls for many tenants than for one tenant, and returns each tenant's own
// usage.
func TestUsageOfManyTenantsReadsListsOnce(t *testing.T) {
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN = "nqn.2020-04.io.spdk.csi:uuid:" })
	red, blue := w.settle()
	for _, x := range []things{red, blue} {
		for range 6 { // more volumes than are queried one by one
			w.must("", "nvmf_create_subsystem", p{"nqn": "nqn.2020-04.io.spdk.csi:uuid:" + x.volume})
			x.volume = text(t, w.must("", "bdev_lvol_snapshot", p{"lvol_name": x.lvs + "/vol", "snapshot_name": "s" + x.volume[:8]}))
		}
	}
	w.asks = nil
	used := w.usage(w.tenancy.Scopes()...)
	assert.Equal(t, []Usage{ // blue's, then red's
		{Bytes: 64 * mib, Volumes: 8, Subsystems: 2, Hosts: 2},
		{Bytes: 64 * mib, Volumes: 8, Subsystems: 8, Hosts: 2},
	}, used)
	var asked []string
	for _, a := range w.asks {
		asked = append(asked, a.method+fmt.Sprint(a.params["name"]))
	}
	assert.ElementsMatch(t, []string{ // two calls are for the bdevs below the lvstores
		"nvmf_get_subsystems<nil>", "iscsi_get_target_nodes<nil>", "bdev_get_bdevs<nil>", "bdev_lvol_get_lvstores<nil>", "bdev_get_bdevsBaseB", "bdev_get_bdevsBaseR",
	}, asked)
	assert.Empty(t, w.usage())
}

// If the target's lists cannot be read, Usage returns an error rather than a number that is too
// low.
func TestUsageFailsIfTheTargetCannotBeRead(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.settle()
	for n := 1; ; n++ {
		w.fail, w.lost = n, false
		w.tenancy.stores.forget()
		_, err := w.tenancy.Usage(t.Context(), w.ask, w.tenancy.Scopes()...)
		if !w.lost {
			require.NoError(t, err)
			break
		}
		require.Error(t, err, "query %d", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	scope := w.tenancy.Of("alice")
	scope.counting <- struct{}{}
	_, err := w.tenancy.Usage(ctx, w.ask, scope)
	require.ErrorIs(t, err, context.Canceled, "another call is counting")
}
