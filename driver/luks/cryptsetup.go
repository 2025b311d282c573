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

// A Runner runs a program to completion with stdin as its standard input, and returns the output
// and exit code. It fails if the program cannot be started or is killed.
type Runner func(stdin hostauth.Secret, name string, args ...string) (output string, code int, err error)

// run runs a program. The kernel kills the program if this process dies, because an orphaned
// cryptsetup could overwrite the header that the next process writes.
func run(stdin hostauth.Secret, name string, args ...string) (output string, code int, err error) {
	// The kernel sends the parent-death signal when the thread that started the program ends, so
	// the thread must be kept alive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin.Reveal())
	// Without udev, cryptsetup creates the device node itself. With udev, cryptsetup would wait for
	// the host's udev, which cannot respond across the container's IPC namespace.
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

// shorten removes the middle of long program output.
func shorten(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + " … " + s[len(s)-most/2:]
}

// Exit codes of cryptsetup(8).
const (
	exitNoPermission = 2 // the passphrase does not unlock any key slot
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
		return fmt.Errorf("cryptsetup %s: not enough memory to derive the key with the parameters in the header: raise the memory limit of the node plugin's container: %s", args[0], out)
	case code == exitBusy:
		return fmt.Errorf("%w: cryptsetup %s: %s", ErrBusy, args[0], out)
	case code != 0:
		return fmt.Errorf("cryptsetup %s: exit code %d: %s", args[0], code, out)
	}
	return nil
}

// The argon2id parameters of new headers follow the second recommendation of RFC 9106, which
// requires 64 MiB of memory. They are fixed, because a measured number of passes would depend on
// the node's load. Passphrases are random, so more memory would add little security.
const (
	argonKiB    = 64 << 10
	argonPasses = 4 // cryptsetup's minimum
	argonLanes  = 4
)

func derivation() []string {
	return []string{"--pbkdf", "argon2id", "--pbkdf-memory", strconv.Itoa(argonKiB), "--pbkdf-force-iterations", strconv.Itoa(argonPasses), "--pbkdf-parallel", strconv.Itoa(argonLanes)}
}

// formatArgs returns the arguments for creating a new header. They set every option with a default
// that depends on the build of cryptsetup.
func formatArgs(v Volume) []string {
	args := []string{"luksFormat", "--type", "luks2", "--batch-mode", "--key-file=-", "--subsystem", subsystemNew, "--cipher", "aes-xts-plain64", "--key-size", "512"}
	if v.SectorSize != 0 {
		args = append(args, "--sector-size", strconv.Itoa(v.SectorSize))
	}
	return append(append(args, derivation()...), v.Device)
}

// openArgs returns the arguments for opening a device. They keep the volume key out of the kernel's
// keyring, because resizing would otherwise need the passphrase.
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

// deriving runs a function that derives a key. It limits the number of concurrent derivations,
// because each needs the amount of memory that the header specifies.
func (l *LUKS) deriving(ctx context.Context, run func() error) error {
	select {
	case l.derivations <- struct{}{}:
		defer func() { <-l.derivations }()
		return run()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// opens reports whether a passphrase opens the device. It changes nothing.
func (l *LUKS) opens(ctx context.Context, device string, passphrase hostauth.Secret) (bool, error) {
	err := l.deriving(ctx, func() error {
		return l.cryptsetup(passphrase, "open", "--type", "luks2", "--batch-mode", "--key-file=-", "--test-passphrase", device)
	})
	if errors.Is(err, ErrWrongPassphrase) {
		return false, nil
	}
	return err == nil, err
}

// inMemory creates an in-memory file that contains a passphrase, and calls use with a path that a
// child process can read.
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
