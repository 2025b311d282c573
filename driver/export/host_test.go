package export_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

func TestVolumeIsExportedToOneHostAtATime(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
			t.Run(string(tr)+" "+release, func(t *testing.T) {
				f := newFixture(t, tr, release)
				ctx, id := t.Context(), f.bdev(t)
				exists := func() bool {
					there, err := f.Exists(ctx, id)
					require.NoError(t, err)
					return there
				}
				assert.False(t, exists())
				require.NoError(t, f.RemoveUnused(ctx, id), "there is none")
				require.NoError(t, f.Withdraw(ctx, id, nil), "there is none")
				for range 2 {
					admission, err := f.Admit(ctx, id, drivertest.Host("n1"), mayExport)
					require.NoError(t, err)
					assert.Equal(t, export.Admission{}, admission)
				}
				assert.True(t, exists())
				_, err := f.Admit(ctx, id, drivertest.Host("n2"), mayExport)
				require.ErrorIs(t, err, export.ErrInUse)
				require.ErrorIs(t, f.RemoveUnused(ctx, id), export.ErrInUse)
				require.NoError(t, f.Withdraw(ctx, id, new(drivertest.Host("n2"))), "it was not admitted")
				assert.True(t, exists())
				for range 2 {
					require.NoError(t, f.Withdraw(ctx, id, new(drivertest.Host("n1"))))
				}
				assert.False(t, exists())
				_, err = f.Admit(ctx, id, drivertest.Host("n2"), mayExport)
				require.NoError(t, err)
				require.NoError(t, f.Withdraw(ctx, id, nil), "of all hosts")
				assert.False(t, exists())
			})
		}
	}
}

// The volume, identified by its UUID, is the subsystem's only namespace, and no other host is
// admitted.
func TestSubsystemBelongsToItsVolume(t *testing.T) {
	f := newFixture(t, export.TCP, "v26.05")
	id, h := f.bdev(t), drivertest.MultipathHost("n1")
	admission, err := f.Admit(t.Context(), id, h, mayExport)
	require.NoError(t, err)
	assert.Equal(t, export.Admission{Multipath: true}, admission)
	sub := f.subsystem(t, id)
	assert.False(t, sub.AllowAnyHost)
	assert.ElementsMatch(t, []spdkrpc.NVMfSubsystemHost{{NQN: h.NQN}, {NQN: h.Multipath}}, sub.Hosts)
	assert.Equal(t, strings.ReplaceAll(id, "-", "")[:20], *sub.SerialNumber)
	require.Len(t, sub.Namespaces, 1)
	assert.Equal(t, id, *sub.Namespaces[0].UUID)
	require.Len(t, sub.ListenAddresses, 1)
	assert.Equal(t, "4420", sub.ListenAddresses[0].Trsvcid)
}

// Both names of a host are admitted and withdrawn together. An export created by an earlier version
// of the driver still admits only one name.
func TestBothHostNamesAreAdmitted(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	n1, h := drivertest.Host("n1"), drivertest.MultipathHost("n1")
	id, old, ctx := f.bdev(t), f.bdev(t), t.Context()
	for range 2 {
		require.NoError(t, admit(ctx, f.Service, id, h))
		assert.ElementsMatch(t, []spdkrpc.NVMfSubsystemHost{{NQN: h.NQN}, {NQN: h.Multipath}}, f.subsystem(t, id).Hosts)
	}
	err := admit(ctx, f.Service, id, drivertest.MultipathHost("n2"))
	require.ErrorIs(t, err, export.ErrInUse)
	assert.ErrorContains(t, err, h.NQN, "the name under which nodes are known")
	require.NoError(t, f.Withdraw(ctx, id, &h))
	exists, err := f.Exists(ctx, id)
	require.NoError(t, err)
	assert.False(t, exists)

	require.NoError(t, admit(ctx, f.Service, old, n1)) // as created by an earlier version
	admission, err := f.Admit(ctx, old, h, mayExport)
	require.NoError(t, err)
	assert.False(t, admission.Multipath, "the subsystem reports no ANA")
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: h.NQN}}, f.subsystem(t, old).Hosts)
	require.NoError(t, f.Withdraw(ctx, old, &h))
}

// A subsystem with the volume's name but another bdev was not created by this package, and remains
// unchanged.
func TestForeignExportIsNotChanged(t *testing.T) {
	f := newFixture(t, export.TCP, "v26.05")
	id, other := f.bdev(t), f.bdev(t)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(id)}))
	_, err := f.rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(id), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: other}})
	require.NoError(t, err)
	before := f.subsystem(t, id)
	require.ErrorIs(t, admit(t.Context(), f.Service, id, drivertest.Host("n1")), export.ErrForeign)
	require.ErrorIs(t, f.RemoveUnused(t.Context(), id), export.ErrForeign, "the other bdev's export stays")
	there, err := f.Exists(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, there)
	assert.Equal(t, before, f.subsystem(t, id))
}

// A volume cannot be frozen while a connected host would fail its I/O during the freeze.
func TestFreezeRequiresHostsThatQueueIO(t *testing.T) {
	f := newFixture(t, export.TCP, "v26.05")
	id, ctx, h := f.bdev(t), t.Context(), drivertest.MultipathHost("n1")
	require.NoError(t, f.CheckHoldsIO(ctx, id), "not exported")
	require.NoError(t, admit(ctx, f.Service, id, h))
	require.NoError(t, f.CheckHoldsIO(ctx, id), "not connected")
	moving := hostname.Of(hostname.MoveNode(uuid.NewString(), uuid.NewString()))
	for _, name := range []string{h.Multipath, hostname.Of("worker-1").Multipath().NQN, moving.Multipath().NQN} {
		require.NoError(t, f.through(drivertest.Connected{Caller: f.fault, Hosts: []string{name}}).CheckHoldsIO(ctx, id), name)
	}
	require.ErrorIs(t, f.through(drivertest.Connected{Caller: f.fault, Hosts: []string{moving.NQN}}).CheckHoldsIO(ctx, id), export.ErrInUse)
	err := f.through(drivertest.Connected{Caller: f.fault, Hosts: []string{h.NQN}}).CheckHoldsIO(ctx, id)
	require.ErrorIs(t, err, export.ErrInUse)
	require.ErrorContains(t, err, h.NQN)
	iscsi := export.NewTarget(export.Config{Transport: export.ISCSI}).Service(f.rpc)
	require.NoError(t, iscsi.CheckHoldsIO(ctx, id), "the proxy refuses to freeze iSCSI volumes")
}

// An export created by SPDK's spdk-csi admits every host, so only its connections show which hosts
// are using it.
func TestConnectionsShowUsersOfLegacyExports(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	id, ctx := f.bdev(t), t.Context()
	n1, n2 := drivertest.Host("n1"), drivertest.Host("n2")
	drivertest.LegacyExport(t, f.rpc, f.Config, id)
	before := f.subsystem(t, id)
	with := func(hosts ...string) *export.Service {
		return f.through(drivertest.Connected{Caller: f.fault, Hosts: hosts})
	}

	other := with(n2.NQN)
	err := admit(ctx, other, id, n1)
	require.ErrorIs(t, err, export.ErrInUse)
	require.ErrorContains(t, err, n2.NQN)
	require.ErrorIs(t, other.Withdraw(ctx, id, &n1), export.ErrInUse)
	require.ErrorIs(t, other.RemoveUnused(ctx, id), export.ErrInUse)
	require.ErrorIs(t, with(n1.NQN, n2.NQN).Withdraw(ctx, id, &n1), export.ErrInUse)
	assert.Equal(t, before, f.subsystem(t, id))

	own := with(n1.NQN)
	require.NoError(t, admit(ctx, own, id, n1), "the connected node itself")
	require.ErrorIs(t, own.RemoveUnused(ctx, id), export.ErrInUse)
	require.NoError(t, own.Withdraw(ctx, id, &n1))
	require.NoError(t, own.RemoveUnused(ctx, id))
}

// If two controllers admit different hosts at the same time, at most one host remains admitted.
func TestTwoControllersAdmitAtMostOneHost(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	id, n2 := f.bdev(t), drivertest.Host("n2").NQN
	s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_add_host", After: func(ctx context.Context) {
		require.NoError(t, f.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: export.NQN(id), Host: n2}))
	}})
	require.ErrorIs(t, admit(t.Context(), s, id, drivertest.Host("n1")), export.ErrInUse)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: n2}}, f.subsystem(t, id).Hosts, "the second controller withdrew its own host")
}

// A node's initiator group is removed together with the node's last export.
func TestInitiatorGroupIsRemovedWithItsLastExport(t *testing.T) {
	f := newFixture(t, export.ISCSI, "v26.05")
	v, w, n1 := f.bdev(t), f.bdev(t), drivertest.Host("n1")
	for _, id := range []string{v, w} {
		require.NoError(t, admit(t.Context(), f.Service, id, n1))
	}
	assert.Len(t, f.initiatorGroups(t), 1, "one for both; the claim was removed")
	require.NoError(t, f.Withdraw(t.Context(), v, &n1))
	assert.Len(t, f.initiatorGroups(t), 1, "the other export needs it")
	require.NoError(t, f.Withdraw(t.Context(), w, &n1))
	assert.Empty(t, f.initiatorGroups(t))
}

// On SPDK v26.09 and later, the error "Invalid parameters" means that the subsystem does not exist.
// On earlier releases, the error can have other causes.
func TestAmbiguousErrorsDependOnTheRelease(t *testing.T) {
	if realtarget.Given() {
		t.Skip("needs simulated targets of two releases; a real target has one of its own")
	}
	for release, err := range map[string]error{"v26.05": spdkrpc.InvalidParams, "v26.09": nil} {
		f := newFixture(t, export.TCP, release)
		s := f.through(drivertest.AmbiguousQueries{Caller: f.fault})
		for range 2 {
			exists, got := s.Exists(t.Context(), f.bdev(t))
			require.ErrorIs(t, got, err, release)
			assert.False(t, exists)
		}
	}
}

// After an ambiguous response to a query, the driver exports, withdraws and removes nothing. Before
// v26.09, the driver refuses the call; on v26.09 and later, SPDK itself refuses to create a
// subsystem that exists.
func TestAmbiguousQueryChangesNothing(t *testing.T) {
	for _, release := range []string{"v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			f := newFixture(t, export.TCP, release)
			id, ctx := f.bdev(t), t.Context()
			require.NoError(t, admit(ctx, f.Service, id, drivertest.Host("n1")))
			before := f.subsystem(t, id)
			s := f.through(drivertest.AmbiguousQueries{Caller: f.fault})
			err := admit(ctx, s, id, drivertest.Host("n2"))
			require.Error(t, err)
			if release == "v26.05" {
				require.ErrorIs(t, err, spdkrpc.InvalidParams)
				require.ErrorIs(t, s.RemoveUnused(ctx, id), spdkrpc.InvalidParams)
				require.ErrorIs(t, s.Withdraw(ctx, id, nil), spdkrpc.InvalidParams)
			}
			assert.Equal(t, before, f.subsystem(t, id))
			require.NoError(t, f.Withdraw(ctx, id, new(drivertest.Host("n1"))))
		})
	}
}
