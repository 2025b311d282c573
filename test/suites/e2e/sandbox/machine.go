package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	stageMachine    = "machine" // the first process of a machine
	machineVariable = "SPDKGATE_SANDBOX_MACHINE"
)

// A Machine has its own processes, mounts, network, host name and IPC inside the sandbox, like a
// separate computer. It shares the kernel with the sandbox: devices, kernel settings, cgroups, and
// the files that its mounts do not hide.
type Machine struct {
	Name string
	init *exec.Cmd
}

// StartMachine starts a machine with copies of the caller's mounts. None of its network interfaces
// are up, and it has no processes except the first one.
func StartMachine(name string) (*Machine, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ready, started, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	m := &Machine{Name: name, init: exec.Command(program)}
	m.init.Stdout, m.init.Stderr = os.Stdout, os.Stderr
	m.init.ExtraFiles = []*os.File{started}
	m.init.Env = append(os.Environ(), stageVariable+"="+stageMachine, machineVariable+"="+name)
	m.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	if err := errors.Join(m.init.Start(), started.Close()); err != nil {
		return nil, fmt.Errorf("start machine %s: %w", name, err)
	}
	if text, err := io.ReadAll(ready); err != nil || string(text) != "ready" {
		return nil, errors.Join(fmt.Errorf("machine %s did not start: %q", name, text), err, m.Kill())
	}
	return m, nil
}

// runMachine is the code of a machine's first process. It does not return unless it fails.
func runMachine() error {
	signal.Ignore(unix.SIGCHLD) // the kernel collects the machine's orphaned processes
	ready := os.NewFile(3, "ready")
	if err := becomeFirst(os.Getenv(machineVariable)); err != nil {
		return err
	}
	_, err := ready.WriteString("ready")
	if err := errors.Join(err, ready.Close()); err != nil {
		return err
	}
	for {
		_ = unix.Pause() // until it is killed
	}
}

// Pid returns the id of the machine's first process, in the sandbox.
func (m *Machine) Pid() int { return m.init.Process.Pid }

// Kill kills all of the machine's processes at once, which ends its mounts and network interfaces.
// It returns only after another goroutine has waited for the processes that were started in Do.
func (m *Machine) Kill() error {
	if err := m.init.Process.Kill(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := m.init.Wait(); !errors.As(err, &exit) {
		return fmt.Errorf("machine %s was not ended by the signal: %w", m.Name, err)
	}
	return nil
}

// Do runs a function that sees the machine's mounts, network and host name. Processes that the
// function starts belong to the machine. In other goroutines, the function must not use file names,
// the network or processes.
func (m *Machine) Do(f func() error) error {
	return onOwnThread(func() error {
		// Threads share the root directory, and a thread that shares it cannot change its mounts.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		var files []*os.File
		for _, kind := range []string{"pid", "net", "uts", "ipc", "mnt"} {
			file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", m.Pid(), kind))
			if err != nil {
				return err
			}
			defer file.Close()
			files = append(files, file)
		}
		for _, file := range files {
			if err := unix.Setns(int(file.Fd()), 0); err != nil {
				return fmt.Errorf("enter %s of machine %s: %w", file.Name(), m.Name, err)
			}
		}
		return f()
	})
}

// onOwnThread runs a function on a thread that ends when the function returns.
func onOwnThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // Go ends the thread of a goroutine that ends locked
		if unix.Gettid() == unix.Getpid() {
			// /proc/PID shows the namespaces of the first thread, which must remain those of the
			// process.
			result <- onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f()
	}()
	return <-result
}
