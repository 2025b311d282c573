package main

import (
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
	"strings"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A program is a process that the soak has started.
type program struct {
	cmd    *exec.Cmd
	exited chan error
}

func start(cmd *exec.Cmd) (*program, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{cmd: cmd, exited: make(chan error, 1)}
	go func() { p.exited <- cmd.Wait() }()
	return p, nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }

func (p *program) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// end stops the program. It returns an error if the program has already exited or has to be killed.
func (p *program) end() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s exited before it was stopped: %w", filepath.Base(p.cmd.Path), err)
	}
	select {
	case err := <-p.exited:
		return err
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s did not stop within a minute", filepath.Base(p.cmd.Path)), p.kill())
	}
}

// realArguments returns the arguments of spdk_tgt on a host without hugepages and devices.
// $SPDK_TGT_ARGS follow them, because spdk_tgt uses the last occurrence of an argument.
func realArguments(socket, more string) []string {
	return append([]string{"-r", socket, "--no-huge", "-s", "1024", "-m", "0x1", "--limit-coredump"}, strings.Fields(more)...)
}

// lastLines returns the end of a log for use in errors, because the log may be deleted with its
// directory before the user reads them.
func lastLines(log *os.File) string {
	text, err := os.ReadFile(log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// startTarget starts the simulated target, or the program $SPDK_TGT with the arguments
// $SPDK_TGT_ARGS. It then creates or loads the tenants' lvstores.
func (w *testbed) startTarget(ctx context.Context) error {
	program := os.Getenv("SPDK_TGT")
	arguments := realArguments(w.socket, os.Getenv("SPDK_TGT_ARGS"))
	w.targetName = "real, " + program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		program, arguments, w.targetName = self, []string{"-simulate", w.socket, "-data", filepath.Join(w.dir, "data")}, "simulated"
	}
	log, err := os.OpenFile(filepath.Join(w.dir, "target.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	if w.target, err = start(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	socket := spdkrpc.NewSocket(w.socket)
	defer func() { _ = socket.Close() }()
	for socket.Call(ctx, "spdk_get_version", nil, nil) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the target did not respond within a minute; its last output:\n%s", lastLines(log))
		case err := <-w.target.exited:
			return fmt.Errorf("%s %s exited: %w; set $SPDK_TGT_ARGS to add arguments; its last output:\n%s", program, strings.Join(arguments, " "), err, lastLines(log))
		case <-time.After(10 * time.Millisecond):
		}
	}
	client := spdkrpc.NewClient(socket)
	for _, t := range w.tenantsOf {
		if err := t.furnish(ctx, client); err != nil {
			return err
		}
	}
	return client.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"})
}

func runSimulation(ctx context.Context, socket, data string) error {
	target, err := spdktest.Start(spdktest.Options{Socket: socket, DataDir: data, Poll: time.Millisecond})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return target.Close()
}

func (w *testbed) startProxy(ctx context.Context) error {
	program := filepath.Join(w.dir, "spdk-proxy")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/spdkgate/spdkgate/cmd/spdk-proxy").CombinedOutput(); err != nil {
		return fmt.Errorf("build spdk-proxy: %w\n%s", err, out)
	}
	for _, address := range []*string{&w.address, &w.metrics} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*address = l.Addr().String()
		_ = l.Close()
	}
	if err := w.configs.make(w); err != nil {
		return err
	}
	w.ca = x509.NewCertPool()
	w.ca.AddCert(w.configs.authority)
	if w.keep {
		log, err := os.Create(filepath.Join(w.dir, "proxy.log"))
		if err != nil {
			return err
		}
		w.book.copy = log
	}
	cmd := exec.Command(program, "serve", "--config", w.configs.path)
	cmd.Stderr = w.book
	proxy, err := start(cmd)
	if err != nil {
		return err
	}
	w.proxy = proxy
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !w.ready(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("spdk-proxy was not ready within a minute:\n%s", w.book.tail())
		case err := <-w.proxy.exited:
			return fmt.Errorf("spdk-proxy exited: %w\n%s", err, w.book.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (w *testbed) ready(ctx context.Context) bool {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.ca}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.address+"/readyz", nil)
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
