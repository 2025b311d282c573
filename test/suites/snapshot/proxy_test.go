package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const password = "not a secret"

const proxyConfig = `listen: %[1]s
tls: {insecure_plaintext: true}
target: {socket: %[2]s/relay.sock, accept_loading_what_hosts_write: true, save: {dir: %[2]s/saved}, freeze: {dir: %[2]s/frozen}}
users:
  - {name: csi, password_hash: %[3]q, roles: [csi-controller]}
  - {name: admin, password_hash: %[3]q, roles: [admin]}
log: {format: text, level: warn}
`

// A proxyProcess is an spdk-proxy that is restarted whenever it ends, as systemd would do.
type proxyProcess struct {
	t       *testing.T
	program string
	dir     string
	url     string
	mu      sync.Mutex
	process *os.Process
	closed  bool
	starts  int
}

func startProxy(g *target) *proxyProcess {
	g.t.Helper()
	p := &proxyProcess{t: g.t, program: g.at("spdk-proxy"), dir: g.dir}
	out, err := exec.CommandContext(g.t.Context(), "go", "build", "-o", p.program, "github.com/spdkgate/spdkgate/cmd/spdk-proxy").CombinedOutput()
	require.NoError(g.t, err, "%s", out)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(g.t, err)
	address := "127.0.0.1:" + freePort(g.t)
	p.url = "http://" + address
	require.NoError(g.t, os.WriteFile(g.at("proxy.yaml"), fmt.Appendf(nil, proxyConfig, address, g.dir, hash), 0o600))
	ended := make(chan struct{})
	go p.supervise(ended)
	g.t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		_ = p.process.Kill()
		p.mu.Unlock()
		<-ended
		if g.t.Failed() {
			text, _ := os.ReadFile(g.at("proxy.log"))
			g.t.Logf("end of the proxy's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
	p.ready()
	return p
}

// supervise starts the proxy and restarts it until closed is set.
func (p *proxyProcess) supervise(ended chan struct{}) {
	defer close(ended)
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return
		}
		out, err := os.OpenFile(p.dir+"/proxy.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		cmd := exec.Command(p.program, "serve", "--config", p.dir+"/proxy.yaml")
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+p.dir, "STATE_DIRECTORY="+p.dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			p.mu.Unlock()
			p.t.Errorf("start the proxy: %v", err)
			return
		}
		p.process = cmd.Process
		p.starts++
		p.mu.Unlock()
		_ = cmd.Wait()
		_ = out.Close()
		if text, err := exec.Command(p.program, "thaw", "--dir", p.dir+"/frozen").CombinedOutput(); err != nil { // ExecStopPost=
			p.t.Logf("spdk-proxy thaw: %v: %s", err, text)
		}
		time.Sleep(restartDelay)
	}
}

// kill sends SIGKILL to the process.
func (p *proxyProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.process.Kill()
}

// ready waits until the proxy is ready, that is, connected to the target.
func (p *proxyProcess) ready() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, long, 5*time.Millisecond)
}

// call makes a call as the user admin.
func (p *proxyProcess) call(ctx context.Context, method string, params, result any) error {
	c, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: p.url, Username: "admin", Password: password})
	if err != nil {
		return err
	}
	return c.Call(ctx, method, params, result)
}

// restartDelay is RestartSec in systemd/spdk-proxy.service.
var restartDelay = func() time.Duration {
	text, err := os.ReadFile("../../../systemd/spdk-proxy.service")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "RestartSec="); ok {
			if strings.TrimLeft(value, "0123456789") == "" {
				value += "s"
			}
			d, err := time.ParseDuration(value)
			if err != nil {
				panic(err)
			}
			return d
		}
	}
	return 100 * time.Millisecond // systemd's default
}()
