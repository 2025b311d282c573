//go:build kernel

package kernel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// spdk is a real SPDK target on this host, used without the driver. It creates thin lvols, exports
// each one under its own name, and removes everything when the test ends.
type spdk struct {
	t       *testing.T
	rpc     *spdkrpc.Client
	lvstore string
	port    string
	portal  bool            // the iSCSI portal group was created
	lvols   map[string]lvol // by volume
}

type lvol struct {
	uuid   string
	target string // NQN or IQN
	tag    int32  // tag of its iSCSI initiator group
}

const (
	mib       = 1 << 20
	portalTag = 4711
)

func startSPDK(t *testing.T, path string) *spdk {
	socket := spdkrpc.NewSocket(path)
	s := &spdk{t: t, rpc: spdkrpc.NewClient(socket), lvstore: "kernel-test-" + rand.Text()[:8], port: freePort(t), lvols: map[string]lvol{}}
	ctx := t.Context()
	release, err := s.rpc.Release(ctx)
	require.NoError(t, err, "talk to the target at %s", path)
	t.Logf("SPDK %v", release)

	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 4096*mib))
	_, err = s.rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: s.lvstore, Filename: file, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		for volume := range s.lvols {
			_ = s.remove(ctx, volume)
		}
		require.NoError(t, s.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &s.lvstore}))
		require.NoError(t, s.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: s.lvstore}))
		require.NoError(t, socket.Close())
	})
	_, err = s.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: s.lvstore, LvsName: s.lvstore})
	require.NoError(t, err)
	return s
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// nvme executes a call from the guest, with exports over NVMe/TCP.
func (s *spdk) nvme(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	return s.do(ctx, c, s.exportNVMe)
}

// iscsi executes a call from the guest, with exports over iSCSI.
func (s *spdk) iscsi(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	return s.do(ctx, c, s.exportISCSI)
}

func (s *spdk) do(ctx context.Context, c control.TargetCall, export func(context.Context, control.TargetCall, *lvol) (map[string]string, error)) (map[string]string, error) {
	switch c.Do {
	case control.Make:
		id, err := s.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{
			LvolName: c.Volume, LvsName: &s.lvstore, SizeInMiB: uint64(c.Bytes / mib), ThinProvision: new(true),
		})
		if err != nil {
			return nil, err
		}
		l := lvol{uuid: id}
		m, err := export(ctx, c, &l)
		s.lvols[c.Volume] = l
		if err == nil {
			m[connect.KeyTargetAddr], m[connect.KeyTargetPort] = control.Address, s.port
			m[connect.KeyNSUUID], m[connect.KeyLvolSize] = id, fmt.Sprint(c.Bytes)
		}
		return m, err
	case control.Resize:
		return nil, s.rpc.BdevLvolResize(ctx, spdkrpc.BdevLvolResizeParams{Name: s.lvols[c.Volume].uuid, SizeInMiB: uint64(c.Bytes / mib)})
	case control.Remove:
		return nil, s.remove(ctx, c.Volume)
	}
	return nil, fmt.Errorf("unknown call %q", c.Do)
}

func (s *spdk) exportNVMe(ctx context.Context, c control.TargetCall, l *lvol) (map[string]string, error) {
	err := s.rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"})
	if transports, getErr := s.rpc.NVMfGetTransports(ctx, spdkrpc.NVMfGetTransportsParams{}); getErr != nil || len(transports) == 0 {
		return nil, errors.Join(err, getErr)
	}
	l.target = "nqn.2026-11.io.spdkgate.test:" + l.uuid
	if err := s.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: l.target, SerialNumber: new("KERNELTEST")}); err != nil {
		return nil, err
	}
	if err := s.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: l.target, Host: c.HostNQN}); err != nil {
		return nil, err
	}
	if _, err := s.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: l.target, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: l.uuid, UUID: &l.uuid}}); err != nil {
		return nil, err
	}
	listen := spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: &s.port}
	if err := s.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: l.target, ListenAddress: listen}); err != nil {
		return nil, err
	}
	return map[string]string{connect.KeyTargetType: "tcp", connect.KeyNQN: l.target}, nil
}

func (s *spdk) exportISCSI(ctx context.Context, c control.TargetCall, l *lvol) (map[string]string, error) {
	l.target, l.tag = "iqn.2026-11.io.spdkgate.test:"+l.uuid, portalTag+1+int32(len(s.lvols))
	if !s.portal {
		s.portal = true
		portal := spdkrpc.ISCSIPortal{Host: "127.0.0.1", Port: s.port}
		if err := s.rpc.ISCSICreatePortalGroup(ctx, spdkrpc.ISCSICreatePortalGroupParams{Tag: portalTag, Portals: []spdkrpc.ISCSIPortal{portal}}); err != nil {
			return nil, err
		}
		s.t.Cleanup(func() {
			require.NoError(s.t, s.rpc.ISCSIDeletePortalGroup(context.WithoutCancel(ctx), spdkrpc.ISCSIDeletePortalGroupParams{Tag: portalTag}))
		})
	}
	if err := s.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{Tag: l.tag, Initiators: []string{c.HostIQN}, Netmasks: []string{"ANY"}}); err != nil {
		return nil, err
	}
	err := s.rpc.ISCSICreateTargetNode(ctx, spdkrpc.ISCSICreateTargetNodeParams{
		Name: l.target, AliasName: c.Volume, QueueDepth: 64, DisableCHAP: new(true),
		PGIGMaps: []spdkrpc.ISCSIPGIGMap{{PGTag: portalTag, IGTag: l.tag}},
		LUNs:     []spdkrpc.ISCSILUNParams{{BdevName: l.uuid, LUNID: new(int32(0))}},
	})
	return map[string]string{connect.KeyTargetType: "iscsi", connect.KeyIQN: l.target}, err
}

func (s *spdk) remove(ctx context.Context, volume string) error {
	l := s.lvols[volume]
	var err error
	if l.tag != 0 {
		err = errors.Join(s.rpc.ISCSIDeleteTargetNode(ctx, spdkrpc.ISCSIDeleteTargetNodeParams{Name: l.target}),
			s.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: l.tag}))
	} else {
		err = s.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: l.target})
	}
	err = errors.Join(err, s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: l.uuid}))
	delete(s.lvols, volume)
	return err
}
