//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// A targetProcess is an spdk_tgt that the test starts, kills and starts again with the
// configuration saved by the proxy.
type targetProcess struct {
	dir     string
	program string
	process *exec.Cmd
	ended   chan struct{}
}

// startTarget starts the spdk_tgt named by SPDK_TGT. The test is skipped if SPDK_TGT is not set.
func startTarget(t *testing.T) *targetProcess {
	p := &targetProcess{dir: t.TempDir(), program: os.Getenv("SPDK_TGT")}
	if p.program == "" {
		t.Skip("SPDK_TGT=/path/to/spdk_tgt is not set: it names the real target for this test")
	}
	folder, err := persist.OpenFolder(p.saved(), 10)
	require.NoError(t, err)
	_, err = folder.Prepare()
	require.NoError(t, err)
	require.NoError(t, p.start(t.Context()))
	t.Cleanup(p.kill)
	return p
}

func (p *targetProcess) socket() string { return filepath.Join(p.dir, "spdk.sock") }
func (p *targetProcess) saved() string  { return filepath.Join(p.dir, "saved") }

// start starts the process and waits until it responds.
func (p *targetProcess) start(ctx context.Context) error {
	args := append([]string{"--no-huge", "-s", "1024", "-m", "0x1", "--limit-coredump", "-r", p.socket(), "-c", filepath.Join(p.saved(), "current.json")},
		strings.Fields(os.Getenv("SPDK_TGT_ARGS"))...)
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.process = exec.Command(p.program, args...)
	p.process.Stdout, p.process.Stderr, p.process.Dir = log, log, p.dir
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.process.Start(); err != nil {
		return err
	}
	p.ended = make(chan struct{})
	go func(c *exec.Cmd, ended chan struct{}) { _ = c.Wait(); close(ended) }(p.process, p.ended)
	socket := spdkrpc.NewSocket(p.socket())
	defer func() { _ = socket.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := socket.Call(once, "spdk_get_version", nil, nil)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return fmt.Errorf("the target ended: %s", lastOf(text))
		case <-ctx.Done():
			return fmt.Errorf("the target does not respond: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *targetProcess) kill() {
	_ = p.process.Process.Kill()
	<-p.ended
}

// restart kills the target and starts it again, after the proxy has saved the exports of these
// volumes.
func (p *targetProcess) restart(ctx context.Context, target *csiTarget) error {
	for tick := time.Tick(50 * time.Millisecond); ; {
		text, err := os.ReadFile(filepath.Join(p.saved(), "current.json"))
		missing := ""
		for name, v := range target.volumes {
			if nqn := v.GetVolumeContext()["nqn"]; !bytes.Contains(text, []byte(nqn)) {
				missing = name
			}
		}
		if err == nil && missing == "" {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("the proxy has not saved the export of %s", missing))
		case <-tick:
		}
	}
	p.kill()
	return p.start(ctx)
}

// do executes a call from the guest.
func (p *targetProcess) do(target *csiTarget) func(context.Context, control.TargetCall) (map[string]string, error) {
	return func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		if c.Do == control.Restart {
			return nil, p.restart(ctx, target)
		}
		return target.do(ctx, c)
	}
}
