package snapshot

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	long  = time.Minute // a timeout that a passing test never reaches
	mib   = 1 << 20
	store = "lvs0"
	disk  = "disk0"
)

// A target is a real spdk_tgt with one lvstore on a sparse file.
type target struct {
	t       *testing.T
	dir     string
	core    int
	process *exec.Cmd
	ended   chan struct{}
	socket  *spdkrpc.Socket
	rpc     *spdkrpc.Client
}

func newTarget(t *testing.T) *target { return newTargetOn(t, 0) }

// newTargetOn returns a target that polls on the given core. Two targets cannot share a core.
func newTargetOn(t *testing.T, core int) *target {
	if os.Getenv("SPDK_TGT") == "" {
		t.Skip("set SPDK_TGT=/path/to/spdk_tgt to run this test")
	}
	g := &target{t: t, dir: t.TempDir(), core: core}
	require.NoError(t, os.WriteFile(g.image(), nil, 0o600))
	require.NoError(t, os.Truncate(g.image(), 32<<30))
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			text, _ := os.ReadFile(g.at("tgt.log"))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("end of the target's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	g.start()
	_, err := g.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: disk, LvsName: store, ClusterSz: new(uint32(mib))})
	require.NoError(t, err)
	return g
}

func (g *target) at(name string) string { return g.dir + "/" + name }
func (g *target) image() string         { return g.at("disk") }
func (g *target) path() string          { return g.at("spdk.sock") }

// start starts spdk_tgt with its disk and waits until it has examined the disk for lvstores.
func (g *target) start() {
	g.t.Helper()
	out, err := os.OpenFile(g.at("tgt.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(g.t, err)
	defer func() { _ = out.Close() }()
	args := append([]string{"--no-huge", "-s", "1024", "-m", fmt.Sprintf("%#x", 1<<g.core), "--limit-coredump", "-r", g.path()}, strings.Fields(os.Getenv("SPDK_TGT_ARGS"))...)
	g.process = exec.Command(os.Getenv("SPDK_TGT"), args...)
	g.process.Stdout, g.process.Stderr, g.process.Dir = out, out, g.dir
	g.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(g.t, g.process.Start())
	// The target's polling takes up a whole core. On machines with few cores, the tests must still
	// be able to run.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, g.process.Process.Pid, 10)
	g.ended = make(chan struct{})
	go func(p *exec.Cmd, ended chan struct{}) { _ = p.Wait(); close(ended) }(g.process, g.ended)
	g.socket = spdkrpc.NewSocket(g.path())
	g.rpc = spdkrpc.NewClient(g.socket)
	require.Eventually(g.t, func() bool {
		select {
		case <-g.ended:
			g.t.Fatal("the target has ended")
		default:
		}
		ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Second)
		defer cancel()
		return g.socket.Call(ctx, "spdk_get_version", nil, nil) == nil
	}, long, 20*time.Millisecond)
	_, err = g.rpc.BdevAIOCreate(g.t.Context(), spdkrpc.BdevAIOCreateParams{Name: disk, Filename: g.image(), BlockSize: new(uint32(4096))})
	require.NoError(g.t, err)
	require.NoError(g.t, g.rpc.BdevWaitForExamine(g.t.Context()))
}

// kill ends the target with SIGKILL, so that it writes nothing more.
func (g *target) kill() {
	if g.process == nil {
		return
	}
	_ = g.socket.Close()
	_ = g.process.Process.Kill()
	<-g.ended
	g.process = nil
}

// loads reports whether the target has found its lvstore.
func (g *target) loads() bool {
	g.t.Helper()
	stores, err := g.rpc.BdevLvolGetLvstores(g.t.Context(), spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(g.t, err)
	return len(stores) == 1
}

// share exports a bdev to all hosts, with ANA reporting, so that tests can read from it and write
// to it without the driver.
func (g *target) share(bdev string) (nqn, address string) {
	g.t.Helper()
	ctx := g.t.Context()
	transports, err := g.rpc.NVMfGetTransports(ctx, spdkrpc.NVMfGetTransportsParams{})
	require.NoError(g.t, err)
	if len(transports) == 0 {
		require.NoError(g.t, g.rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}))
	}
	nqn, port := "nqn.2026-11.io.spdkgate.test:"+bdev, freePort(g.t)
	require.NoError(g.t, g.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn, AllowAnyHost: new(true), ANAReporting: new(true), SerialNumber: new("SNAPSHOTTEST")}))
	_, err = g.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: bdev, NSID: new(uint32(1))}})
	require.NoError(g.t, err)
	listen := spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: &port}
	require.NoError(g.t, g.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: nqn, ListenAddress: listen}))
	return nqn, "127.0.0.1:" + port
}

func (g *target) unshare(nqn string) {
	g.t.Helper()
	require.NoError(g.t, g.rpc.NVMfDeleteSubsystem(g.t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn}))
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}
