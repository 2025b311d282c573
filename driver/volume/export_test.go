package volume

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestNVMeExportHasTheExpectedSubsystem(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		for name, legacy := range map[string]bool{"new": false, "taken over from spdk-csi": true} {
			t.Run(release+", "+name, func(t *testing.T) {
				testExportNVMe(t, newTestServiceOf(t, export.TCP, rpcschema.MustRelease(release)), legacy)
			})
		}
	}
}

func testExportNVMe(t *testing.T, b *testService, legacy bool) {
	v := b.create(t, "pvc-1", 4)
	if legacy {
		drivertest.LegacyExport(t, b.rpc, b.Config.Config, v.UUID)
	}
	for range 2 {
		_, err := b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
		require.NoError(t, err)
	}
	sub := drivertest.Subsystem(t, b.rpc, v.UUID)
	assert.False(t, sub.AllowAnyHost)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: drivertest.Host("n1").NQN}}, sub.Hosts)
	require.Len(t, sub.Namespaces, 1)
	assert.Equal(t, v.UUID, *sub.Namespaces[0].UUID)
	require.Len(t, sub.ListenAddresses, 1)
	assert.Equal(t, v.UUID, *sub.ModelNumber)
	if !legacy {
		assert.Equal(t, uint32(1), *sub.MaxNamespaces)
		assert.Equal(t, strings.ReplaceAll(v.UUID, "-", "")[:20], *sub.SerialNumber)
	}

	_, err := b.Export(t.Context(), v.UUID, drivertest.Host("n2"))
	require.ErrorIs(t, err, ErrInUse, "one node at a time")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n2"))), "the volume is not published there")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse, "the volume is still published to n1")
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n1"))))
	}
	assert.Empty(t, b.state(t).Subsystems)
	_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n2"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, nil), "from all hosts")
		require.NoError(t, b.Delete(t.Context(), v.UUID))
	}
	assert.Empty(t, b.state(t).Lvols)
}

// noLists fails the test if a call lists all objects of a kind, because the duration of such a call
// grows with the number of volumes.
type noLists struct {
	spdkrpc.Caller
	t *testing.T
}

func (u noLists) Call(ctx context.Context, method string, params, result any) error {
	switch method {
	case "nvmf_get_subsystems", "bdev_get_bdevs", "nvmf_subsystem_get_controllers":
		assert.NotNil(u.t, params, method)
	case "iscsi_get_target_nodes", "bdev_lvol_get_lvols", "bdev_lvol_get_lvstores":
		assert.Fail(u.t, "lists all objects", method)
	}
	return u.Caller.Call(ctx, method, params, result)
}

func TestExportMakesNoListCalls(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease(release))
			v := b.create(t, "pvc-1", 4)
			b.seen.swept.Store(true)
			s := b.Target.Service(spdkrpc.NewClient(noLists{b.fault, t}))
			s.seen.swept.Store(true) // each service sweeps once
			for range 2 {
				_, err := s.Export(t.Context(), v.UUID, drivertest.Host("n1"))
				require.NoError(t, err)
			}
			for range 2 {
				require.NoError(t, s.Unexport(t.Context(), v.UUID, new(drivertest.Host("n1"))))
			}
			require.NoError(t, s.Delete(t.Context(), v.UUID))
		})
	}
}

func TestISCSIExportHasTheExpectedTargetNode(t *testing.T) {
	b := newTestService(t, export.ISCSI)
	v, w := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	drivertest.LegacyExport(t, b.rpc, b.Config.Config, v.UUID)
	for range 2 {
		for _, x := range []Volume{v, w} {
			_, err := b.Export(t.Context(), x.UUID, drivertest.Host("n1"))
			require.NoError(t, err)
		}
	}
	nodes, err := b.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	for _, n := range nodes {
		require.Len(t, n.PGIGMaps, 1)
		assert.Equal(t, nodes[0].PGIGMaps, n.PGIGMaps)
		assert.GreaterOrEqual(t, n.PGIGMaps[0].IGTag, int32(leastTag))
		require.Len(t, n.LUNs, 1)
	}
	_, err = b.Export(t.Context(), v.UUID, drivertest.Host("n2"))
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n2"))))
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n1"))))
	}
	assert.Equal(t, 2, b.state(t).Groups, "the node's group is needed for its other volume")
	require.NoError(t, b.Unexport(t.Context(), w.UUID, nil))
	assert.Equal(t, 1, b.state(t).Groups)
	assert.Empty(t, b.state(t).Targets)
}

// A leftover export does not prevent the deletion of its volume. The driver removes the export,
// even if it is incomplete or its volume no longer exists.
func TestLeftoverExportsDoNotPreventDeletion(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	_, err := b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
	require.NoError(t, err)
	require.NoError(t, b.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: v.UUID}))
	assert.Len(t, b.state(t).Subsystems, 1, "SPDK keeps the subsystem")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse, "a host is still admitted")
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(drivertest.Host("n1"))))
	assert.Empty(t, b.state(t).Subsystems)

	w := b.create(t, "pvc-2", 4)
	require.NoError(t, b.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(w.UUID)}))
	require.NoError(t, b.Delete(t.Context(), w.UUID))
	assert.Empty(t, b.state(t).Subsystems, "a subsystem without listener, namespace and host")
}

func TestMissingVolumeCannotBePublished(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			_, err := b.Export(t.Context(), uuid.NewString(), drivertest.Host("n1"))
			require.ErrorIs(t, err, ErrNotFound)
			require.NoError(t, b.Unexport(t.Context(), uuid.NewString(), new(drivertest.Host("n1"))))
			require.NoError(t, b.Unexport(t.Context(), uuid.NewString(), nil))
		})
	}
}
