package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// runInit is the code of the sandbox's first process. It starts the program again, collects
// orphaned processes, and ends with the program's exit code. It starts no other program, so it can
// wait for any process.
func runInit() (int, error) {
	if err := becomeFirst("sandbox"); err != nil {
		return 1, err
	}
	if err := os.Setenv(stageVariable, stageMain); err != nil {
		return 1, err
	}
	program, err := os.Executable()
	if err != nil {
		return 1, err
	}
	child, err := os.StartProcess(program, os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, err
		case pid == child.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == child.Pid && status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

// becomeFirst makes this process, the first in new namespaces, independent of the surrounding ones.
func becomeFirst(hostName string) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	for _, m := range []struct {
		action, source, target, kind string
		flags                        uintptr
	}{
		{"separate the mounts", "", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"mount /proc", "proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		// Mounts in containers with bidirectional propagation must be visible to other processes.
		{"share the mounts inside", "", "/", "", unix.MS_REC | unix.MS_SHARED},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("%s: %w", m.action, err)
		}
	}
	return unix.Sethostname([]byte(hostName))
}
