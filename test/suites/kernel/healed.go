//go:build kernel

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// A replicaServer is a real SPDK target with one replica. Each start exports the replica again, as
// the saved configuration of spdk-proxy would.
type replicaServer struct {
	*targetProcess
	name, port string
	made       bool
	uuid       string
}

// replicaServers starts a target for each replica. The names are those of the guest's volumes.
func replicaServers(t *testing.T, names ...string) map[string]*replicaServer {
	all := map[string]*replicaServer{}
	for _, name := range names {
		r := &replicaServer{targetProcess: startTarget(t), name: name, port: freePort(t)}
		require.NoError(t, os.WriteFile(r.disk(), nil, 0o600))
		require.NoError(t, os.Truncate(r.disk(), 512*mib))
		all[name] = r
	}
	return all
}

func (r *replicaServer) disk() string { return filepath.Join(r.dir, "disk") }
func (r *replicaServer) nqn() string  { return "nqn.2026-11.io.spdkgate.test:" + r.name }

// serve creates the replica, or finds it on the disk, and exports it to a host.
func (r *replicaServer) serve(ctx context.Context, bytes int64, host string) (map[string]string, error) {
	socket := spdkrpc.NewSocket(r.socket())
	defer func() { _ = socket.Close() }()
	rpc := spdkrpc.NewClient(socket)
	const store = "store"
	_, err := rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: r.disk(), BlockSize: new(uint32(4096))})
	if err == nil {
		err = rpc.BdevWaitForExamine(ctx)
	}
	if err == nil && !r.made {
		if _, err = rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: store}); err == nil {
			r.uuid, err = rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: r.name, LvsName: new(store), SizeInMiB: uint64(bytes / mib), ThinProvision: new(true)})
		}
		r.made = err == nil
	}
	listen := spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: &r.port}
	for _, step := range []func() error{
		func() error {
			return rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"})
		},
		func() error {
			return rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: r.nqn(), SerialNumber: new("KERNELTEST")})
		},
		func() error {
			_, err := rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: r.nqn(), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: r.uuid, UUID: &r.uuid}})
			return err
		},
		func() error {
			return rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: r.nqn(), Host: host})
		},
		func() error {
			return rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: r.nqn(), ListenAddress: listen})
		},
	} {
		if err == nil {
			err = step()
		}
	}
	return map[string]string{
		connect.KeyTargetType: "tcp", connect.KeyTargetAddr: control.Address, connect.KeyTargetPort: r.port, connect.KeyNQN: r.nqn(),
		connect.KeyNSUUID: r.uuid, connect.KeyLvolSize: fmt.Sprint(bytes),
	}, err
}

// doReplicas returns a function that executes the guest's calls.
func doReplicas(all map[string]*replicaServer) func(context.Context, control.TargetCall) (map[string]string, error) {
	return func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		r := all[c.Volume]
		if r == nil {
			return nil, errors.New("no replica " + c.Volume)
		}
		switch c.Do {
		case control.Make:
			return r.serve(ctx, c.Bytes, c.HostNQN)
		case control.Kill:
			r.kill()
			return nil, nil
		case control.Pause:
			return nil, r.process.Process.Signal(syscall.SIGSTOP)
		case control.Continue:
			return nil, r.process.Process.Signal(syscall.SIGCONT)
		case control.Restart:
			if err := r.start(ctx); err != nil {
				return nil, err
			}
			return r.serve(ctx, c.Bytes, c.HostNQN)
		}
		return nil, fmt.Errorf("unknown call %q", c.Do)
	}
}
