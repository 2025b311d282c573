//go:build kernel

package kernel

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// A Machine is a virtual machine for a scenario.
type Machine struct {
	// Target executes the guest's calls. It is nil if the host has no target.
	Target func(context.Context, control.TargetCall) (map[string]string, error)
	// Progress receives the guest's reports on its writes, and returns true if the guest should
	// end. It is nil if the scenario does not report progress.
	Progress func([]control.Progress) (end bool)
	// Found receives the counts of bytes that the guest found in a new volume. It is nil if the
	// scenario does not search for data.
	Found func(control.Found)
	// Disks holds raw images of the machine's disks, which persist from one run to the next.
	Disks []string
	// Deadline limits the whole run. Zero means 65 minutes.
	Deadline time.Duration

	t   *testing.T
	kit kit

	mu    sync.Mutex
	steps int
	cases []*result
	done  bool
	off   context.CancelFunc // of the current run
	lost  bool               // the power was lost
}

// NewMachine returns a machine that is not yet booted.
func NewMachine(t *testing.T) *Machine {
	if testing.Short() {
		t.Skip("boots a virtual machine: run without -short")
	}
	k, err := openKit(t.Context(), t.Logf)
	if errors.Is(err, errNoKit) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return &Machine{t: t, kit: k}
}

// Run boots the machine for a scenario, and returns when it has ended.
func (m *Machine) Run(scenario, target string, kernelParams ...string) {
	t := m.t
	dir := t.TempDir()
	initramfs, console := filepath.Join(dir, "initramfs"), filepath.Join(dir, "console")
	programs := map[string]string{"/init": build(t, dir, module+"/test/suites/kernel/guest")}
	if slices.Contains([]string{control.Node, control.Killed, control.PowerLoss, control.MovedFrom, control.MovedTo, control.Restarted, control.Authenticated, control.Encrypted, control.Copied, control.Replicated}, scenario) {
		programs[control.Plugin] = build(t, dir, module+"/cmd/spdk-csi")
	}
	require.NoError(t, m.kit.withPrograms(programs, initramfs))

	server := httptest.NewServer(m.handler())
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port

	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(m.Deadline, 65*time.Minute))
	defer cancel()
	m.mu.Lock()
	m.done, m.lost, m.off = false, false, cancel
	m.mu.Unlock()
	params := append([]string{
		"console=ttyS0", "quiet", "panic=-1", "nokaslr", "mitigations=off", "audit=0", "no_timer_check", "tsc=reliable",
		fmt.Sprintf("%s=%d", control.ParamPort, port), control.ParamScenario + "=" + scenario, control.ParamTarget + "=" + target,
	}, kernelParams...)
	cmd := m.kit.command(ctx, "qemu", m.kit.root("usr/bin/qemu-system-x86_64"),
		"-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-smp", "1", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-L", m.kit.root("usr/share/qemu"), "-L", m.kit.root("usr/share/seabios"),
		"-kernel", m.kit.vmlinux(), "-initrd", initramfs, "-append", strings.Join(params, " "),
		"-serial", "file:"+console,
		"-netdev", "user,id=net,restrict=off", "-device", "virtio-net-pci,netdev=net,romfile=")
	// By default, qemu looks for its modules next to its program, which here is the loader.
	for i, disk := range m.Disks {
		cmd.Args = append(cmd.Args, "-drive", fmt.Sprintf("if=none,id=disk%d,format=raw,cache=unsafe,file=%s", i, disk), "-device", fmt.Sprintf("virtio-blk-pci,drive=disk%d", i))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+m.kit.root("usr/lib/x86_64-linux-gnu/qemu"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	fmt.Fprintf(t.Output(), "booting kernel %s: scenario %s, target %s %s\n", m.kit.kernel, scenario, target, strings.Join(kernelParams, " "))
	err := cmd.Run()
	text, _ := os.ReadFile(console)
	if m.lost && !t.Failed() {
		fmt.Fprintf(t.Output(), "power loss after %d steps and %.0f s\n", m.steps, time.Since(start).Seconds())
		return
	}
	if err != nil || !m.done || t.Failed() {
		t.Logf("console:\n%s", lastOf(text))
	}
	require.NoError(t, err, "qemu: %s", output.String())
	require.True(t, m.done, "the machine ended before its scenario")
	fmt.Fprintf(t.Output(), "%d steps in %.0f s, %.0f s of processor time\n", m.steps, time.Since(start).Seconds(),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
}

const module = "github.com/spdkgate/spdkgate"

// build builds a program for the guest, and returns its path.
func build(t *testing.T, dir, pkg string) string {
	path := filepath.Join(dir, filepath.Base(pkg))
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// PowerOff ends the current run as a power loss would, and [Machine.Run] returns. Data that the
// guest has not written to its disks is lost.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = true
	m.off()
}

// Lost reports whether [Machine.PowerOff] ended the last run.
func (m *Machine) Lost() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

func (m *Machine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+control.PathStep, func(_ http.ResponseWriter, r *http.Request) {
		var s control.Step
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			m.t.Errorf("step: %v", err)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.steps++
		m.record(s)
		if s.Error != "" {
			m.t.Errorf("FAIL %6.2f s  %s: %s %s", s.Seconds, s.Name, s.Error, s.Detail)
			return
		}
		fmt.Fprintf(m.t.Output(), "ok %6.2f s  %-36s %s\n", s.Seconds, s.Name, strings.TrimSpace(s.Detail))
	})
	mux.HandleFunc("POST "+control.PathTarget, func(w http.ResponseWriter, r *http.Request) {
		var c control.TargetCall
		var reply control.TargetReply
		err := json.NewDecoder(r.Body).Decode(&c)
		if err == nil {
			reply.Context, err = m.Target(r.Context(), c)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		json.NewEncoder(w).Encode(reply)
	})
	mux.HandleFunc("POST "+control.PathProgress, func(w http.ResponseWriter, r *http.Request) {
		var p []control.Progress
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			m.t.Errorf("progress: %v", err)
			return
		}
		json.NewEncoder(w).Encode(control.ProgressReply{End: m.Progress(p)})
	})
	mux.HandleFunc("POST "+control.PathFound, func(_ http.ResponseWriter, r *http.Request) {
		var f control.Found
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			m.t.Errorf("found: %v", err)
			return
		}
		m.Found(f)
	})
	mux.HandleFunc("POST "+control.PathDone, func(http.ResponseWriter, *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done = true
	})
	return mux
}
