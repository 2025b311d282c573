package drivertest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Host returns the host of a node without native multipath. The same name always yields the same
// host.
func Host(node string) export.Host {
	id := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(node)).String()
	return export.Host{NQN: "nqn.2014-08.org.nvmexpress:uuid:" + id, IQN: "iqn.2026-11.io.spdkgate:host:" + id}
}

// MultipathHost returns the host of a node with native multipath, which connects with a second NQN.
// The same name always yields the same host.
func MultipathHost(node string) export.Host {
	h := Host(node)
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(node))
	id[6] = id[6]&0x0f | 0x80 // version 8
	h.Multipath = "nqn.2014-08.org.nvmexpress:uuid:" + id.String()
	return h
}

// LegacyExport exports a volume as SPDK's spdk-csi does: to every host, with one serial number for
// all volumes.
func LegacyExport(t *testing.T, rpc *spdkrpc.Client, c export.Config, volume string) {
	t.Helper()
	ctx := t.Context()
	if c.Transport == export.ISCSI {
		require.NoError(t, rpc.ISCSICreateTargetNode(ctx, spdkrpc.ISCSICreateTargetNodeParams{
			Name: volume, AliasName: volume, LUNs: []spdkrpc.ISCSILUNParams{{BdevName: volume, LUNID: new(int32(0))}},
			PGIGMaps: []spdkrpc.ISCSIPGIGMap{{PGTag: 1, IGTag: 1}}, QueueDepth: 64, DisableCHAP: new(true),
		}))
		return
	}
	ensureTCP(t, rpc)
	require.NoError(t, rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(volume), AllowAnyHost: new(true), SerialNumber: new("spdkcsi-sn"), ModelNumber: &volume}))
	_, err := rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(volume), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: volume}})
	require.NoError(t, err)
	require.NoError(t, rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{
		NQN: export.NQN(volume), ListenAddress: spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: c.Listen[0].Addr, Trsvcid: &c.Listen[0].Port},
	}))
}

func ensureTCP(t *testing.T, rpc *spdkrpc.Client) {
	t.Helper()
	trtype := "TCP"
	if _, err := rpc.NVMfGetTransports(t.Context(), spdkrpc.NVMfGetTransportsParams{Trtype: &trtype}); err != nil {
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		require.NoError(t, rpc.NVMfCreateTransport(t.Context(), spdkrpc.NVMfCreateTransportParams{Trtype: trtype}))
	}
}

// Subsystem returns the subsystem that exports a volume. It fails the test if there is no such
// subsystem.
func Subsystem(t *testing.T, rpc *spdkrpc.Client, volume string) spdkrpc.NVMfSubsystem {
	t.Helper()
	subs, err := rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: new(export.NQN(volume))})
	require.NoError(t, err)
	require.Len(t, subs, 1)
	return subs[0]
}
