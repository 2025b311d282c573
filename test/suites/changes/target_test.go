package changes

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	long = 5 * time.Minute // a timeout that a passing test never reaches
	mib  = 1 << 20
)

type p = map[string]any

// A target is a real spdk_tgt.
type target struct {
	t       *testing.T
	dir     string
	process *exec.Cmd
	ended   chan struct{}
	socket  *spdkrpc.Socket
	exports int
	tcp     bool     // the TCP transport was created
	program []string // the program and its first arguments
	args    []string
	onStart func()
}

func newTarget(t *testing.T, onStart func(g *target), args ...string) *target {
	return newTargetOf(t, []string{os.Getenv("SPDK_TGT")}, onStart, args...)
}

func newTargetOf(t *testing.T, program []string, onStart func(g *target), args ...string) *target {
	g := &target{t: t, dir: t.TempDir(), program: program, args: args}
	g.onStart = func() { onStart(g) }
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			text, _ := os.ReadFile(g.dir + "/tgt.log")
			lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.Contains(line, "Currently unable to find bdev") })
			t.Logf("end of the target's log:\n%s", strings.Join(lines[max(0, len(lines)-100):], "\n"))
		}
	})
	g.start()
	return g
}

func (g *target) start() {
	out, err := os.OpenFile(g.dir+"/tgt.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(g.t, err)
	defer func() { _ = out.Close() }()
	args := slices.Concat(g.program[1:], []string{"--no-huge", "-s", "1024", "--limit-coredump", "--disable-cpumask-locks", "-r", g.dir + "/spdk.sock"}, g.args, strings.Fields(os.Getenv("SPDK_TGT_ARGS")))
	g.process = exec.Command(g.program[0], args...)
	g.process.Stdout, g.process.Stderr, g.process.Dir = out, out, g.dir
	g.process.Env = append(os.Environ(), yielding(g.t)...)
	g.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(g.t, g.process.Start())
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, g.process.Process.Pid, 10)
	g.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(g.process, g.ended)
	g.socket, g.tcp = spdkrpc.NewSocket(g.dir+"/spdk.sock"), false
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
	g.onStart()
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

func (g *target) call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*long)
	defer cancel()
	return g.socket.Call(ctx, method, params, result)
}

func (g *target) must(method string, params, result any) {
	g.t.Helper()
	require.NoError(g.t, g.call(method, params, result), "%s %v", method, params)
}

// share exports a bdev to all hosts.
func (g *target) share(bdev string) (nqn, address string) {
	if !g.tcp {
		g.must("nvmf_create_transport", p{"trtype": "TCP"}, nil)
		g.tcp = true
	}
	g.exports++
	nqn = fmt.Sprintf("nqn.2026-11.io.spdkgate.test:%d", g.exports)
	g.must("nvmf_create_subsystem", p{"nqn": nqn, "allow_any_host": true, "ana_reporting": true, "serial_number": "CHANGES"}, nil)
	g.must("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": bdev, "nsid": 1}}, nil)
	var port string
	require.Eventually(g.t, func() bool { // another process may have taken the port
		port = freePort(g.t)
		return g.call("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}}, nil) == nil
	}, long, 10*time.Millisecond)
	return nqn, "127.0.0.1:" + port
}

func (g *target) unshare(nqn string) { g.must("nvmf_delete_subsystem", p{"nqn": nqn}, nil) }

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

const (
	password    = "not a secret"
	proxyConfig = `listen: %[1]s
tls: {insecure_plaintext: true}
target: {socket: %[2]s/spdk.sock, accept_loading_what_hosts_write: true, accept_changes_without_counts: true, freeze: {dir: %[2]s/frozen}}
users:
  - {name: admin, password_hash: %[3]q, roles: [admin]}
log: {format: text, level: warn}
`
)

// A proxy is an spdk-proxy in front of a target. It is stopped when the test ends.
type proxy struct {
	client *spdkrpc.HTTPS
	url    string
	stop   func()
}

// as returns a client of the same proxy for another user.
func (w *proxy) as(t *testing.T, user string) *proxy {
	c, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: w.url, Username: user, Password: password})
	require.NoError(t, err)
	return &proxy{c, w.url, w.stop}
}

// programs is the directory of the programs that all tests share.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "changes")
	if err != nil {
		log.Fatal(err)
	}
	programs = dir
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// proxyProgram builds the spdk-proxy under test, but only once.
var proxyProgram = sync.OnceValues(func() (string, error) {
	return build(programs+"/spdk-proxy", "go", "build", "-o", programs+"/spdk-proxy", "github.com/spdkgate/spdkgate/cmd/spdk-proxy")
})

func build(result string, command ...string) (string, error) {
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return result, nil
}

func startProxy(g *target) *proxy { return startProxyWith(g, proxyConfig) }

func startProxyWith(g *target, config string) *proxy {
	program, err := proxyProgram()
	require.NoError(g.t, err)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(g.t, err)
	address := "127.0.0.1:" + freePort(g.t)
	require.NoError(g.t, os.WriteFile(g.dir+"/proxy.yaml", fmt.Appendf(nil, config, address, g.dir, hash), 0o600))
	output, err := os.Create(g.dir + "/proxy.log")
	require.NoError(g.t, err)
	cmd := exec.Command(program, "serve", "--config", g.dir+"/proxy.yaml")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+g.dir, "STATE_DIRECTORY="+g.dir)
	require.NoError(g.t, cmd.Start())
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g.t.Cleanup(func() {
		stop()
		if g.t.Failed() {
			text, _ := os.ReadFile(g.dir + "/proxy.log")
			g.t.Logf("end of the proxy's log:\n%s", text[max(0, len(text)-3000):])
		}
	})
	w := (&proxy{url: "http://" + address, stop: stop}).as(g.t, "admin")
	require.Eventually(g.t, func() bool {
		r, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, long, 10*time.Millisecond)
	return w
}

func (w *proxy) call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*long)
	defer cancel()
	return w.client.Call(ctx, method, params, result)
}
