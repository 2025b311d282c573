package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

const (
	pluginDir   = "/run/csi" // of the node plugin's socket
	pluginLog   = "/run/plugin.log"
	stateDir    = "/var/lib/spdkcsi"
	kubeletDir  = "/var/lib/kubelet"
	stopTimeout = 30 * time.Second
)

var nodeID = control.FirstNode

// A plugin is an spdk-csi --node process and a client connected to its socket. Like kubelet, it
// retries a call after a failure, and restarts a plugin that has ended.
type plugin struct {
	csi.NodeClient
	conn  *grpc.ClientConn
	cmd   *exec.Cmd
	args  []string // further flags
	trace *tracer  // nil unless its system calls are traced
}

func newPlugin(args ...string) (*plugin, error) {
	for _, dir := range []string{pluginDir, stateDir, kubeletDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	conn, err := grpc.NewClient("unix://"+pluginDir+"/csi.sock",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 500 * time.Millisecond}}))
	if err != nil {
		return nil, err
	}
	return &plugin{NodeClient: csi.NewNodeClient(conn), conn: conn, args: args}, nil
}

// start starts the process and waits until it responds. If traced is set, the process stops at each
// system call that changes something, until the tracer lets it continue.
func (p *plugin) start(ctx context.Context, traced bool) error {
	log, err := os.OpenFile(pluginLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{
		control.Plugin, "--node", "--nodeid=" + nodeID, "--endpoint=unix://" + pluginDir + "/csi.sock", "--node-state-dir=" + stateDir,
		"--nvme-ctrl-loss-timeout=60s", "--nvme-reconnect-delay=1s", "--nvme-keep-alive=5s", "--drain-timeout=5s",
		"--node-health-interval=0", // by default, only the calls of a test change anything
	}, p.args...)
	p.cmd = exec.Command(args[0], args[1:]...)
	if traced {
		if p.trace, err = newTracer(p.cmd, args); err != nil {
			return err
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if traced {
		if err := p.trace.attach(p.cmd.Process.Pid); err != nil {
			return err
		}
	}
	probe := func() error {
		_, err := csi.NewIdentityClient(p.conn).Probe(ctx, &csi.ProbeRequest{})
		return err
	}
	if err = probe(); status.Code(err) == codes.Unavailable { // over the connection to a killed process
		err = probe()
	}
	return err
}

// stop sends the process a signal, and waits for it to exit.
func (p *plugin) stop(signal unix.Signal) error {
	if p.cmd == nil {
		return errors.New("the plugin is not running")
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	ended, err := make(chan error, 1), error(nil)
	go func(c *exec.Cmd) { ended <- c.Wait() }(p.cmd)
	select {
	case err = <-ended:
	case <-time.After(2 * stopTimeout):
		return fmt.Errorf("the plugin has not exited: %s", stacks(p.cmd.Process.Pid))
	}
	p.cmd = nil
	if p.trace != nil {
		err = errors.Join(p.trace.end())
		p.trace = nil
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && signal == unix.SIGKILL {
		return nil
	}
	return err
}

// stacks returns the positions in the kernel where a process's threads are waiting.
func stacks(pid int) string {
	all := ""
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stack", pid))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			text = []byte(err.Error())
		}
		all += f + ":\n" + string(text)
	}
	return all
}

// lastLog returns the last part of the plugin's log.
func (p *plugin) lastLog() string {
	text, err := os.ReadFile(pluginLog)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3000):])
}

// pod contains a volume's staging path and published path.
type pod struct{ staging, published string }

func podOf(volume string) pod {
	return pod{
		staging:   filepath.Join(kubeletDir, "plugins/kubernetes.io/csi/csi.spdk.io", volume, "globalmount"),
		published: filepath.Join(kubeletDir, "pods", volume, "volumes/kubernetes.io~csi/pv/mount"),
	}
}

// prepare creates the directories that kubelet creates before its calls.
func (p pod) prepare() error {
	return errors.Join(os.MkdirAll(p.staging, 0o750), os.MkdirAll(filepath.Dir(p.published), 0o750))
}

// remove removes the directories that kubelet removes after its calls; they must be empty.
func (p pod) remove() error {
	if _, err := os.Lstat(p.published); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the target path %s still exists: %v", p.published, err)
	}
	if entries, err := os.ReadDir(p.staging); err == nil && len(entries) > 0 {
		return fmt.Errorf("the staging path %s is not empty: %v", p.staging, entries)
	}
	return errors.Join(ignoreMissing(os.Remove(p.staging)), ignoreMissing(os.Remove(filepath.Dir(p.published))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
