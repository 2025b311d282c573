package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// These environment variables are set in the processes inside the sandbox.
const (
	stageVariable = "SPDKGATE_SANDBOX_STAGE"
	dirVariable   = "SPDKGATE_SANDBOX_DIR"

	stageInit = "init" // the first process of the sandbox
	stageMain = "main" // the program itself
)

// Options describe a sandbox.
type Options struct {
	Parent  string   // directory for the state directory
	Name    string   // prefix of the names of the state directory and the cgroup; unique to this kind of sandbox
	Sysctls []string // kernel settings that are restored, such as kernel.panic; programs may change them inside
	LoopDir string   // directory within the state directory; loop devices on its files are detached at the end
	Log     func(format string, args ...any)
	Keep    string                 // directory to which Saved is copied from the state directory at the end, if it is not empty
	Saved   string                 // directory within the state directory
	Prepare func(dir string) error // populates the state directory before the sandbox starts
}

// Inside returns the state directory if this process is inside a sandbox. Call Inside first, which
// does not return in the first process of the sandbox or of a machine.
func Inside() (dir string, inside bool) {
	switch os.Getenv(stageVariable) {
	case stageInit:
		code, err := runInit()
		if err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			code = 1
		}
		os.Exit(code)
	case stageMachine:
		fmt.Fprintln(os.Stderr, "machine:", runMachine())
		os.Exit(1)
	case stageMain:
		return os.Getenv(dirVariable), true
	}
	return "", false
}

// Cgroup returns the name of the cgroup that belongs to a state directory. The cgroup exists in all
// hierarchies.
func Cgroup(dir string) string { return filepath.Base(dir) }

// Run runs this program with its arguments in a new sandbox and returns its exit code. When the
// context ends, the sandbox ends immediately. Run needs root. Callers must make sure that no two
// sandboxes exist at the same time.
func Run(ctx context.Context, o Options) (code int, err error) {
	left, err := leftovers(o)
	if err != nil {
		return 1, err
	}
	for _, dir := range left {
		o.Log("cleaning up after an earlier run that was killed: %s", dir)
		if err := clean(dir, o); err != nil {
			return 1, err
		}
	}
	dir, err := os.MkdirTemp(o.Parent, o.Name+"-")
	if err != nil {
		return 1, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // pods that do not run as root use volumes below it
		return 1, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return 1, err
	}
	defer lock.Close()
	defer func() {
		start := time.Now()
		err = errors.Join(err, clean(dir, o))
		o.Log("sandbox removed in %.1f s", time.Since(start).Seconds())
	}()
	if err := prepare(dir, o); err != nil {
		return 1, err
	}
	if o.Prepare != nil {
		if err := o.Prepare(dir); err != nil {
			return 1, err
		}
	}
	return start(ctx, dir, o)
}

// start starts the first process of the sandbox and waits for its end.
func start(ctx context.Context, dir string, o Options) (int, error) {
	// The kernel kills the child when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit, dirVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true, // Ctrl-C reaches only the caller, which ends the sandbox
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start the sandbox: %w", err)
	}
	o.Log("the first process of the sandbox is %d", cmd.Process.Pid)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 1, errors.New("interrupted")
	case errors.As(err, &exit):
		return max(1, exit.ExitCode()), nil
	case err != nil:
		return 1, err
	}
	return 0, nil
}

// lockDir locks a state directory until this process ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// leftovers returns the state directories whose processes have ended.
func leftovers(o Options) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(o.Parent, o.Name+"-*"))
	if err != nil {
		return nil, err
	}
	var left []string
	for _, dir := range dirs {
		if lock, err := lockDir(dir); err == nil {
			left = append(left, dir)
			if err := lock.Close(); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}
