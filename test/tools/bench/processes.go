package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	user       = "bench"
	tenantUser = "bench-of-team"
	password   = "only for this run"
)

// startTarget returns the target's socket and a description of the target. It starts a simulated
// target unless $SPDK_SOCK is set.
func startTarget(ctx context.Context, poll time.Duration) (socket, description string, stop func() error, err error) {
	if socket := os.Getenv("SPDK_SOCK"); socket != "" {
		return socket, "real, at $SPDK_SOCK", func() error { return nil }, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-simulate", "-poll", poll.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", "", nil, fmt.Errorf("start the simulated target: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", "", nil, errors.Join(fmt.Errorf("start the simulated target: %w", err), cmd.Wait())
	}
	description = "simulated, without polling interval"
	if poll > 0 {
		description = fmt.Sprintf("simulated, polling every %s", poll)
	}
	return strings.TrimSpace(line), description, func() error { return end(cmd) }, nil
}

func runSimulation(ctx context.Context, poll time.Duration) error {
	target, err := spdktest.Start(spdktest.Options{Poll: poll})
	if err != nil {
		return err
	}
	fmt.Println(target.Socket())
	<-ctx.Done()
	return target.Close()
}

// A proxy is an spdk-proxy in its own process, with TLS and a log file.
type proxy struct {
	cmd *exec.Cmd
	dir string
	url string
	// local is the path of the proxy's local socket.
	local string
	ca    *x509.CertPool
}

// startProxy starts a program, and builds it first if program is "". If save is true, the proxy
// saves the target's configuration.
func startProxy(ctx context.Context, socket, program string, save bool) (_ *proxy, err error) {
	dir, err := os.MkdirTemp("", "spdk-proxy-bench-")
	if err != nil {
		return nil, err
	}
	p := &proxy{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if program == "" {
		program = filepath.Join(dir, "spdk-proxy")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/spdkgate/spdkgate/cmd/spdk-proxy").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build spdk-proxy: %w\n%s", err, out)
		}
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	hash, err := authn.HashPassword(password)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	p.local = filepath.Join(dir, "rpc.sock")
	saving := ""
	if save {
		saving = fmt.Sprintf(", save: {dir: %q}", filepath.Join(dir, "saved"))
	}
	text := fmt.Sprintf(`listen: %q
listen_unix: {path: %q}
tls: {self_signed_dir: .}
target: {socket: %q, accept_loading_what_hosts_write: true%s}
users:
  - {name: %s, password_hash: %q, local: {users: ["%d"]}, roles: [admin]}
  - {name: %s, password_hash: %q, roles: [team], tenant: team}
  - {name: %s, password_hash: %q, roles: [csi-controller]}
roles:
  team:
    extends: [csi-controller]
    allow: [spdk_get_version, bdev_get_bdevs, bdev_lvol_*, nvmf_get_subsystems]
    deny: [bdev_lvol_*_lvstore]
tenants:
  team:
    lvstores: [%s]
    nqn_prefixes: [%q]
    quota: {gib: 1000, volumes: 10000, subsystems: 100}
`, address, p.local, socket, saving, user, hash, os.Getuid(), tenantUser, hash, csiUser, hash, lvstore, nqn)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.CommandContext(ctx, program, "serve", "--config", config)
	p.cmd.Stderr = log
	p.cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+dir) // for the socket that serves profiles
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start spdk-proxy: %w", err)
	}
	p.url = "https://" + address + "/"
	return p, p.awaitReady(ctx)
}

// awaitReady waits until the proxy is connected to its target.
func (p *proxy) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		if text, err := os.ReadFile(filepath.Join(p.dir, "tls.crt")); err == nil {
			p.ca = x509.NewCertPool()
			p.ca.AppendCertsFromPEM(text)
			if p.ready(ctx) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return fmt.Errorf("spdk-proxy is not ready: %w\n%s", ctx.Err(), log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *proxy) ready(ctx context.Context) bool {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.ca}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// record writes the proxy's CPU profile to a file in the background. The returned function waits
// until the profile is complete.
func (p *proxy) record(ctx context.Context, path string, span time.Duration) func() error {
	recorded := make(chan error, 1)
	go func() {
		cmd := exec.CommandContext(ctx, p.cmd.Path, "profile", "cpu", "--seconds", strconv.Itoa(int(span.Seconds())))
		cmd.Env = p.cmd.Env
		profile, err := cmd.Output()
		if err == nil {
			err = os.WriteFile(path, profile, 0o644)
		}
		recorded <- err
	}()
	return func() error { return <-recorded }
}

func (p *proxy) stop() error {
	var err error
	if p.cmd != nil && p.cmd.Process != nil {
		err = end(p.cmd)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// cpu returns the CPU time that the proxy has used since it started.
func (p *proxy) cpu() time.Duration { return cpuTime(p.cmd) }

// loggedCalls returns how many calls the audit log contains.
func (p *proxy) loggedCalls() (int, error) {
	log, err := os.ReadFile(filepath.Join(p.dir, "log"))
	return bytes.Count(log, []byte(`"msg":"call"`)), err
}

// cpuTime returns the CPU time that a process has used since it started.
func cpuTime(cmd *exec.Cmd) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var ticks int
	for _, f := range fields[11:13] { // user and system time
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
}

func end(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return cmd.Wait()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
