package quiesce

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A bench is a Quiescer in front of a simulated target with volumes v0, v1, … in lvs0.
type bench struct {
	t      *testing.T
	target *spdktest.Target
	rpc    *spdkrpc.Client
	folder *Folder
	q      *Quiescer
	log    *logtest.Log

	mu        sync.Mutex
	froze     int
	refused   int
	recovered int
}

func newBench(t *testing.T, release string) *bench {
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	socket := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = socket.Close() })
	folder, err := OpenFolder(filepath.Join(t.TempDir(), "frozen"))
	require.NoError(t, err)
	b := &bench{t: t, target: target, rpc: spdkrpc.NewClient(socket), folder: folder, log: new(logtest.Log)}
	b.q = b.quiescer(target.Socket())
	b.populate()
	return b
}

func (b *bench) populate() {
	_, err := b.rpc.BdevMallocCreate(b.t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("base"), NumBlocks: 262144, BlockSize: 4096})
	require.NoError(b.t, err)
	_, err = b.rpc.BdevLvolCreateLvstore(b.t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "base", LvsName: "lvs0"})
	require.NoError(b.t, err)
	require.NoError(b.t, b.rpc.NVMfCreateTransport(b.t.Context(), spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}))
}

// quiescer returns a Quiescer for a socket, with the bench's journal.
func (b *bench) quiescer(socket string) *Quiescer {
	count := func(n *int, by int) { b.mu.Lock(); defer b.mu.Unlock(); *n += by }
	return New(Options{
		Folder: b.folder, At: Place{Socket: socket}, Connect: connect, Process: process, Log: slog.New(slog.NewTextHandler(b.log, nil)),
		Observer: Observer{
			Froze: func(time.Duration, bool) { count(&b.froze, 1) }, Refused: func() { count(&b.refused, 1) }, Recovered: func(n int) { count(&b.recovered, n) },
		},
	})
}

// connect and process replace functions that package proxy implements with packages target and
// persist.
func connect(ctx context.Context, at Place) (*Target, error) {
	socket := spdkrpc.NewSocket(at.Socket, spdkrpc.WithOneConnection())
	var v struct{ Version string }
	if err := socket.Call(ctx, "spdk_get_version", nil, &v); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("%w: %w", ErrAway, err)
	}
	gone, living := socket.Connected()
	if !living {
		_ = socket.Close()
		return nil, ErrAway
	}
	go func() { <-gone; _ = socket.Close() }()
	name, err := process(at.Socket)
	return &Target{Caller: socket, Process: name, Release: rpcschema.MustRelease(strings.TrimPrefix(v.Version, "SPDK ")), Close: socket.Close}, err
}

func process(socket string) (string, error) {
	info, err := os.Stat(socket)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Ino, st.Mtim.Nano()), nil
}

// shortGrace is the grace period for tests that wait until it ends.
const shortGrace = 50 * time.Millisecond

func nqn(name string) string { return "nqn.2016-06.io.spdk:" + name }

func (b *bench) volume(name string) string {
	id, err := b.rpc.BdevLvolCreate(b.t.Context(), spdkrpc.BdevLvolCreateParams{LvsName: new("lvs0"), LvolName: name, SizeInMiB: 8})
	require.NoError(b.t, err)
	return id
}

// export exports a volume with two listeners, the second of which is non-optimized.
func (b *bench) export(volume string, ana bool) {
	b.subsystem(volume, ana)
	b.add(volume, volume)
}

func (b *bench) subsystem(name string, ana bool) {
	ctx := b.t.Context()
	require.NoError(b.t, b.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn(name), ANAReporting: &ana, MaxNamespaces: new(uint32(2))}))
	for _, port := range ports {
		require.NoError(b.t, b.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: nqn(name), ListenAddress: address(port)}))
	}
	if ana {
		b.set(name, ports[1], nonOptimized)
	}
}

func (b *bench) add(subsystem, volume string) {
	_, err := b.rpc.NVMfSubsystemAddNS(b.t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn(subsystem), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: "lvs0/" + volume}})
	require.NoError(b.t, err)
}

var ports = []string{"4420", "4421"}

func address(port string) spdkrpc.NVMfListenAddress {
	return spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: &port}
}

func (b *bench) set(subsystem, port, state string) {
	require.NoError(b.t, b.rpc.NVMfSubsystemListenerSetANAState(b.t.Context(), spdkrpc.NVMfSubsystemListenerSetANAStateParams{
		NQN: nqn(subsystem), ListenAddress: address(port), ANAState: spdkrpc.NVMfSubsystemListenerSetANAStateANAState(state),
	}))
}

// states returns the ANA states of a subsystem's listeners, by port and group.
func (b *bench) states(subsystem string) map[string]string {
	list, err := b.rpc.NVMfSubsystemGetListeners(context.Background(), spdkrpc.NVMfSubsystemGetListenersParams{NQN: nqn(subsystem)})
	require.NoError(b.t, err)
	states := map[string]string{}
	for _, l := range list {
		for _, s := range l.ANAStates {
			states[fmt.Sprint(l.Address.Trsvcid, "/", s.ANAGroup)] = string(s.ANAState)
		}
	}
	return states
}

var asExported = map[string]string{"4420/1": optimized, "4420/2": optimized, "4421/1": nonOptimized, "4421/2": nonOptimized}

func (b *bench) exists(name string) bool {
	list, err := b.rpc.BdevGetBdevs(context.Background(), spdkrpc.BdevGetBdevsParams{Name: new("lvs0/" + name)})
	if spdkrpc.KindOf(err) == spdkrpc.NoSuchDevice {
		return false
	}
	require.NoError(b.t, err)
	return len(list) == 1
}

func (b *bench) entries() []string {
	list, err := os.ReadDir(b.folder.path)
	require.NoError(b.t, err)
	names := []string{}
	for _, d := range list {
		names = append(names, d.Name())
	}
	return names
}

func want(volume, snapshot string) []Snapshot {
	return []Snapshot{{Volume: "lvs0/" + volume, Name: snapshot, NQN: nqn(volume)}}
}

// wantAll requests a snapshot of each volume, named after the volume.
func wantAll(volumes []string, snapshot string) (list []Snapshot) {
	for _, v := range volumes {
		list = append(list, Snapshot{Volume: "lvs0/" + v, Name: snapshot + "-" + v, NQN: nqn(v)})
	}
	return list
}

func (b *bench) take(wanted []Snapshot) ([]Taken, error) {
	return b.q.Take(context.Background(), wanted, Mode{Freeze: true})
}

// called returns the number of calls of a method.
func (b *bench) called(method string) (n int) {
	for _, c := range b.target.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}
