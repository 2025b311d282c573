package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// disturbMachine checks that a machine has its own mounts, network, host name and processes, and
// loses them when it is killed. It runs inside a sandbox, and leaves a running machine behind.
func disturbMachine(dir string) error {
	cgroup := filepath.Join(Cgroup(dir), "machine-1")
	if err := MakeCgroup(cgroup); err != nil {
		return err
	}
	folder := filepath.Join(dir, "machine")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	m, err := StartMachine("machine-1")
	if err != nil {
		return err
	}
	var child *exec.Cmd
	err = m.Do(func() error {
		if err := unix.Mount("tmpfs", folder, "tmpfs", 0, ""); err != nil {
			return err
		}
		// The child's orphan also belongs to the machine.
		child = exec.Command("sh", "-c", "echo of the machine > "+folder+"/file; sleep 1000 & exec sleep 1000")
		return child.Start()
	})
	if err != nil {
		return err
	}
	// The function disturb has created the interface inside0 in the sandbox.
	if err := m.Do(func() error {
		return prints("machine-1 0", "sh", "-c", "echo $(uname -n) $(grep -c inside0 /proc/net/dev)")
	}); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, "file")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a mount of the machine is visible outside: %w", err)
	}
	if err := prints("sandbox", "uname", "-n"); err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- child.Wait() }()
	if err := errors.Join(m.Kill(), RemoveCgroup(cgroup)); err != nil {
		return err
	}
	if err := <-ended; err == nil || err.Error() != "signal: killed" {
		return fmt.Errorf("the machine's process was not killed: %w", err)
	}
	_, err = StartMachine("machine-2")
	return err
}

// prints returns an error unless a program prints the given text.
func prints(want, program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err == nil && strings.TrimSpace(string(out)) != want {
		err = fmt.Errorf("%s printed %q, not %q", program, out, want)
	}
	return err
}
