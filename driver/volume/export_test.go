package volume

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// legacyExport exports a volume as spdk-csi does: to everybody, all with one serial number.
func legacyExport(t *testing.T, b *testService, v Volume) {
	t.Helper()
	ctx := t.Context()
	if b.Transport == export.ISCSI {
		require.NoError(t, b.rpc.ISCSICreateTargetNode(ctx, spdkrpc.ISCSICreateTargetNodeParams{
			Name: v.UUID, AliasName: v.UUID, LUNs: []spdkrpc.ISCSILUNParams{{BdevName: v.UUID, LUNID: new(int32(0))}},
			PGIGMaps: []spdkrpc.ISCSIPGIGMap{{PGTag: 1, IGTag: 1}}, QueueDepth: 64, DisableCHAP: new(true),
		}))
		return
	}
	b.ensureTransport(t)
	require.NoError(t, b.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID), AllowAnyHost: new(true), SerialNumber: new("spdkcsi-sn"), ModelNumber: &v.UUID}))
	_, err := b.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(v.UUID), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: v.UUID}})
	require.NoError(t, err)
	require.NoError(t, b.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{
		NQN: export.NQN(v.UUID), ListenAddress: spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: b.ListenAddr, Trsvcid: &b.ListenPort},
	}))
}

func (b *testService) ensureTransport(t *testing.T) {
	t.Helper()
	trtype := "TCP"
	if _, err := b.rpc.NVMfGetTransports(t.Context(), spdkrpc.NVMfGetTransportsParams{Trtype: &trtype}); err != nil {
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		require.NoError(t, b.rpc.NVMfCreateTransport(t.Context(), spdkrpc.NVMfCreateTransportParams{Trtype: trtype}))
	}
}

func (b *testService) subsystem(t *testing.T, v Volume) spdkrpc.NVMfSubsystem {
	t.Helper()
	subs, err := b.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: new(export.NQN(v.UUID))})
	require.NoError(t, err)
	require.Len(t, subs, 1)
	return subs[0]
}

func TestExportNVMe(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		for name, legacy := range map[string]bool{"anew": false, "taken over from spdk-csi": true} {
			t.Run(release+", "+name, func(t *testing.T) {
				testExportNVMe(t, newTestServiceOf(t, export.TCP, rpcschema.MustRelease(release)), legacy)
			})
		}
	}
}

func testExportNVMe(t *testing.T, b *testService, legacy bool) {
	v := b.create(t, "pvc-1", 4)
	if legacy {
		legacyExport(t, b, v)
	}
	for range 2 {
		_, err := b.Export(t.Context(), v.UUID, host("n1"))
		require.NoError(t, err)
	}
	sub := b.subsystem(t, v)
	assert.False(t, sub.AllowAnyHost)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: host("n1").NQN}}, sub.Hosts)
	require.Len(t, sub.Namespaces, 1)
	assert.Equal(t, v.UUID, *sub.Namespaces[0].UUID)
	require.Len(t, sub.ListenAddresses, 1)
	assert.Equal(t, v.UUID, *sub.ModelNumber)
	if !legacy {
		assert.Equal(t, uint32(1), *sub.MaxNamespaces)
		assert.Equal(t, strings.ReplaceAll(v.UUID, "-", "")[:20], *sub.SerialNumber)
	}

	_, err := b.Export(t.Context(), v.UUID, host("n2"))
	require.ErrorIs(t, err, ErrInUse, "one node at a time")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n2"))), "was not published there")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse, "and still is, elsewhere")
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n1"))))
	}
	assert.Empty(t, b.state(t).Subsystems)
	_, err = b.Export(t.Context(), v.UUID, host("n2"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, nil), "from wherever it is")
		require.NoError(t, b.Delete(t.Context(), v.UUID))
	}
	assert.Empty(t, b.state(t).Lvols)
}

// obscure answers, as SPDK may, every question about one subsystem as if its parameters were wrong.
type obscure struct{ spdkrpc.Caller }

func (o obscure) Call(ctx context.Context, method string, params, result any) error {
	if method == "nvmf_get_subsystems" && params != nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.InvalidParams, Code: -32602, Message: "Invalid parameters"}
	}
	return o.Caller.Call(ctx, method, params, result)
}

// An answer that may mean "not there" is no licence to export again, or to delete, where the release gives another one
// for what is not there.
func TestRefusedQuestionIsNoAnswer(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	_, err := b.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	before := b.subsystem(t, v)
	s := b.Target.Service(spdkrpc.NewClient(obscure{b.fault}))
	_, err = s.Export(t.Context(), v.UUID, host("n2"))
	require.ErrorIs(t, err, spdkrpc.InvalidParams)
	require.ErrorIs(t, s.Delete(t.Context(), v.UUID), spdkrpc.InvalidParams)
	require.ErrorIs(t, s.Unexport(t.Context(), v.UUID, nil), spdkrpc.InvalidParams)
	assert.Equal(t, before, b.subsystem(t, v))
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n1"))))
}

// From v26.09 the answers differ; creation, which SPDK refuses for what is there, keeps exports apart all the same.
func TestCreationIsTheSafetyNet(t *testing.T) {
	b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease("v26.09"))
	v := b.create(t, "pvc-1", 4)
	_, err := b.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	before := b.subsystem(t, v)
	_, err = b.Target.Service(spdkrpc.NewClient(obscure{b.fault})).Export(t.Context(), v.UUID, host("n2"))
	require.Error(t, err)
	assert.Equal(t, before, b.subsystem(t, v))
}

// unnamed counts questions for all objects of a kind, which take the longer the more volumes there are.
type unnamed struct {
	spdkrpc.Caller
	t *testing.T
}

func (u unnamed) Call(ctx context.Context, method string, params, result any) error {
	switch method {
	case "nvmf_get_subsystems", "bdev_get_bdevs", "nvmf_subsystem_get_controllers":
		assert.NotNil(u.t, params, method)
	case "iscsi_get_target_nodes", "bdev_lvol_get_lvols", "bdev_lvol_get_lvstores":
		assert.Fail(u.t, "lists all objects", method)
	}
	return u.Caller.Call(ctx, method, params, result)
}

func TestExportAsksForNamesOnly(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease(release))
			v := b.create(t, "pvc-1", 4)
			b.seen.swept.Store(true)
			s := b.Target.Service(spdkrpc.NewClient(unnamed{b.fault, t}))
			s.seen.swept.Store(true) // once for each service
			for range 2 {
				_, err := s.Export(t.Context(), v.UUID, host("n1"))
				require.NoError(t, err)
			}
			for range 2 {
				require.NoError(t, s.Unexport(t.Context(), v.UUID, new(host("n1"))))
			}
			require.NoError(t, s.Delete(t.Context(), v.UUID))
		})
	}
}

func TestExportISCSI(t *testing.T) {
	b := newTestService(t, export.ISCSI)
	v, w := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	legacyExport(t, b, v)
	for range 2 {
		for _, x := range []Volume{v, w} {
			_, err := b.Export(t.Context(), x.UUID, host("n1"))
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
	_, err = b.Export(t.Context(), v.UUID, host("n2"))
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n2"))))
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse)
	for range 2 {
		require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n1"))))
	}
	assert.Equal(t, 2, b.state(t).Groups, "the node's group is needed for its other volume")
	require.NoError(t, b.Unexport(t.Context(), w.UUID, nil))
	assert.Equal(t, 1, b.state(t).Groups)
	assert.Empty(t, b.state(t).Targets)
}

func TestExportFindsForeignNamespace(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, other := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	require.NoError(t, b.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
	_, err := b.rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(v.UUID), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: other.UUID}})
	require.NoError(t, err)
	before := b.subsystem(t, v)
	_, err = b.Export(t.Context(), v.UUID, host("n1"))
	require.ErrorIs(t, err, export.ErrForeign)
	assert.Equal(t, before, b.subsystem(t, v), "nothing was changed")
}

// What outlives its volume must not stay for ever, nor keep the volume's deletion from succeeding.
func TestLeftovers(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	_, err := b.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	require.NoError(t, b.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: v.UUID}))
	assert.Len(t, b.state(t).Subsystems, 1, "SPDK keeps it")
	require.ErrorIs(t, b.Delete(t.Context(), v.UUID), ErrInUse, "a node is still to be told")
	require.NoError(t, b.Unexport(t.Context(), v.UUID, new(host("n1"))))
	assert.Empty(t, b.state(t).Subsystems)

	w := b.create(t, "pvc-2", 4)
	require.NoError(t, b.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(w.UUID)}))
	require.NoError(t, b.Delete(t.Context(), w.UUID))
	assert.Empty(t, b.state(t).Subsystems, "one without listener and namespace, which looks published to nobody")
}

func TestPublishMissingVolume(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			_, err := b.Export(t.Context(), uuid.NewString(), host("n1"))
			require.ErrorIs(t, err, ErrNotFound)
			require.NoError(t, b.Unexport(t.Context(), uuid.NewString(), new(host("n1"))))
			require.NoError(t, b.Unexport(t.Context(), uuid.NewString(), nil))
		})
	}
}
