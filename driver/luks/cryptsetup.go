package luks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// A Runner runs a program to completion with a string as its standard input, and returns its output
// and exit code. It fails if the program cannot be run, or is killed.
type Runner func(stdin hostauth.Secret, name string, args ...string) (output string, code int, err error)

// run runs a program. The kernel kills that program if this process dies, because an orphaned
// cryptsetup could overwrite a header that the next process writes.
func run(stdin hostauth.Secret, name string, args ...string) (output string, code int, err error) {
	// The kernel sends the parent-death signal when the thread that started the program ends, so
	// the thread must be kept alive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin.Reveal())
	// Without udev, cryptsetup creates the device node itself. With udev, it would wait for the
	// host's udev, which cannot respond into a container's IPC namespace.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DM_DISABLE_UDEV=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	output = shorten(strings.TrimSpace(out.String()))
	var exit *exec.ExitError
	switch {
	case err == nil:
		return output, 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return output, exit.ExitCode(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", 0, fmt.Errorf("%w: %s is not installed: install cryptsetup (%w)", ErrUnsupported, name, err)
	}
	return output, 0, fmt.Errorf("run %s: %w: %s", name, err, output)
}

// shorten removes the middle of a program's output if it is long.
func shorten(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + " … " + s[len(s)-most/2:]
}

// Exit codes of cryptsetup(8).
const (
	exitNoPermission = 2 // the passphrase opens no key slot
	exitNoMemory     = 3
	exitBusy         = 5
)

// cryptsetup runs cryptsetup. stdin is the passphrase for --key-file=-, or zero.
func (l *LUKS) cryptsetup(stdin hostauth.Secret, args ...string) error {
	out, code, err := l.runTool(stdin, "cryptsetup", args...)
	switch {
	case err != nil:
		return err
	case code == exitNoPermission:
		return fmt.Errorf("%w: cryptsetup %s: %s", ErrWrongPassphrase, args[0], out)
	case code == exitNoMemory:
		return fmt.Errorf("cryptsetup %s: not enough memory to derive the key, as the header demands: raise the memory limit of the node plugin's container: %s", args[0], out)
	case code == exitBusy:
		return fmt.Errorf("%w: cryptsetup %s: %s", ErrBusy, args[0], out)
	case code != 0:
		return fmt.Errorf("cryptsetup %s: exit code %d: %s", args[0], code, out)
	}
	return nil
}

// The argon2id parameters in new headers are those of RFC 9106's second recommendation, which
// requires 64 MiB of memory. The parameters are fixed, because a measured number of passes would
// depend on the load of the node. Passphrases are random, so more memory would add little security.
const (
	argonKiB    = 64 << 10
	argonPasses = 4 // cryptsetup's minimum
	argonLanes  = 4
)

func derivation() []string {
	return []string{"--pbkdf", "argon2id", "--pbkdf-memory", strconv.Itoa(argonKiB), "--pbkdf-force-iterations", strconv.Itoa(argonPasses), "--pbkdf-parallel", strconv.Itoa(argonLanes)}
}

// formatArgs returns the arguments for creating a new header. The arguments set every option whose
// default depends on how cryptsetup was built.
func formatArgs(v Volume) []string {
	args := []string{"luksFormat", "--type", "luks2", "--batch-mode", "--key-file=-", "--subsystem", subsystemNew, "--cipher", "aes-xts-plain64", "--key-size", "512"}
	if v.SectorSize != 0 {
		args = append(args, "--sector-size", strconv.Itoa(v.SectorSize))
	}
	return append(append(args, derivation()...), v.Device)
}

// openArgs returns the arguments for opening a device. The volume key is not put into the kernel's
// keyring, because resizing would then need the passphrase.
func openArgs(v Volume) []string {
	args := []string{"open", "--type", "luks2", "--batch-mode", "--key-file=-", "--disable-keyring"}
	if v.ReadOnly {
		args = append(args, "--readonly")
	}
	if v.Discards {
		args = append(args, "--allow-discards")
	}
	return append(args, v.Device, v.Name)
}

// deriving runs a function that derives a key. It limits the number of concurrent runs, because
// each run needs as much memory as the header requires.
func (l *LUKS) deriving(ctx context.Context, run func() error) error {
	select {
	case l.derivations <- struct{}{}:
		defer func() { <-l.derivations }()
		return run()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// opens reports whether a passphrase opens the device. opens changes nothing.
func (l *LUKS) opens(ctx context.Context, device string, passphrase hostauth.Secret) (bool, error) {
	err := l.deriving(ctx, func() error {
		return l.cryptsetup(passphrase, "open", "--type", "luks2", "--batch-mode", "--key-file=-", "--test-passphrase", device)
	})
	if errors.Is(err, ErrWrongPassphrase) {
		return false, nil
	}
	return err == nil, err
}

// inMemory creates an in-memory file that contains a passphrase, and calls the function use with a
// path from which a child process can read the passphrase.
func inMemory(passphrase hostauth.Secret, use func(path string) error) (err error) {
	fd, err := unix.MemfdCreate("passphrase", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("allocate memory for a passphrase: %w", err)
	}
	f := os.NewFile(uintptr(fd), "passphrase")
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(passphrase.Reveal()); err != nil {
		return fmt.Errorf("allocate memory for a passphrase: %w", err)
	}
	return use(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
}
