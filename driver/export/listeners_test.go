package export_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// portalsOf returns the portals at which nodes can reach the volume.
func (f *fixture) portalsOf(t *testing.T, id string) (portals []string) {
	t.Helper()
	if f.Transport != export.ISCSI {
		for _, a := range f.subsystem(t, id).ListenAddresses {
			assert.Equal(t, map[bool]string{true: "IPv4", false: "IPv6"}[a.Traddr[0] == '1'], string(a.Adrfam))
			portals = append(portals, export.Portal{Addr: a.Traddr, Port: a.Trsvcid}.String())
		}
		slices.Sort(portals)
		return portals
	}
	nodes, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	k := slices.IndexFunc(nodes, func(n spdkrpc.ISCSITargetNode) bool { return n.Name == export.IQN(id) })
	require.GreaterOrEqual(t, k, 0)
	for _, m := range nodes[k].PGIGMaps {
		for _, g := range f.portalGroups(t) {
			if g.Tag == m.PGTag {
				portals = append(portals, g.Portals[0].Host+":"+g.Portals[0].Port)
			}
		}
	}
	slices.Sort(portals)
	return portals
}

// Each export listens on all configured portals. Missing listeners are added, for example after an
// address has been added to the configuration. Listeners that are no longer configured remain,
// because a host may be using them.
func TestMissingListenersAreAdded(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
			t.Run(string(tr)+" "+release, func(t *testing.T) {
				f := newFixture(t, tr, release)
				ctx, id, n1 := t.Context(), f.bdev(t), drivertest.Host("n1")
				v4, v6, other := f.Listen[0], export.Portal{Addr: "::1", Port: f.Listen[0].Port}, export.Portal{Addr: "127.0.0.1", Port: "14420"}
				both := f.listeningOn(v4, v6)
				for range 2 {
					admission, err := both.Admit(ctx, id, n1, mayExport)
					require.NoError(t, err)
					require.NoError(t, admission.NotListening)
					assert.Equal(t, []string{v4.String(), v6.String()}, f.portalsOf(t, id))
				}
				changed := f.listeningOn(v6, other)
				hosts := func() []string {
					hosts, err := changed.Hosts(ctx, []string{id})
					require.NoError(t, err)
					return hosts[0]
				}
				assert.Empty(t, hosts(), "the export lacks a listener, so it must be published again")
				require.NoError(t, admit(ctx, changed, id, n1))
				assert.Len(t, hosts(), 1)
				assert.Equal(t, []string{other.String(), v4.String(), v6.String()}, f.portalsOf(t, id))
				sameAddress := f.listeningOn(v4, export.Portal{Addr: "0:0::1", Port: v6.Port})
				require.NoError(t, admit(ctx, sameAddress, id, n1))
				assert.Len(t, f.portalsOf(t, id), 3, "another spelling of an address")
				require.NoError(t, both.Withdraw(ctx, id, &n1))
				exists, err := f.Exists(ctx, id)
				require.NoError(t, err)
				assert.False(t, exists)
			})
		}
	}
}

// If an address is down, volumes remain reachable at the other addresses. The listener on that
// address is added later.
func TestRefusedListenerIsTolerated(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr, "")
			ctx, id, n1 := t.Context(), f.bdev(t), drivertest.Host("n1")
			up, down := f.Listen[0], export.Portal{Addr: "192.0.2.1", Port: f.Listen[0].Port} // a documentation address
			_, err := f.listeningOn(down).Admit(ctx, id, n1, mayExport)
			require.ErrorIs(t, err, spdkrpc.InvalidParams)
			require.ErrorContains(t, err, down.String())
			for _, portals := range [][]export.Portal{{down, up}, {up, down}} {
				admission, err := f.listeningOn(portals...).Admit(ctx, id, n1, mayExport)
				require.NoError(t, err)
				require.ErrorContains(t, admission.NotListening, down.String())
				assert.Equal(t, []string{up.String()}, f.portalsOf(t, id))
			}
			hosts, err := f.listeningOn(up, down).Hosts(ctx, []string{id})
			require.NoError(t, err)
			assert.Empty(t, hosts[0])
		})
	}
}

// If an existing export admits every host, its listener is added only after all other hosts are
// excluded.
func TestListenerIsAddedLast(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	ctx, n1 := t.Context(), drivertest.MultipathHost("n1")
	for range 20 { // concurrent calls may arrive in any order
		id := f.bdev(t)
		require.NoError(t, f.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(id), AllowAnyHost: new(true), MaxNamespaces: new(uint32(1))}))
		listen := &drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_add_listener", Before: func(context.Context, any) error {
			sub := f.subsystem(t, id)
			assert.False(t, sub.AllowAnyHost)
			assert.Len(t, sub.Namespaces, 1)
			assert.NotEmpty(t, sub.Hosts)
			return nil
		}}
		_, err := f.through(listen).Admit(ctx, id, n1, mayExport)
		require.NoError(t, err)
	}
}
