package manual

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// insideVariable makes the test binary act as the first process in the isolated system where a
// page's commands run. The variable's value is the directory of the root file system.
const insideVariable = "SPDKGATE_MANUAL_ROOT"

// inside runs one page. The process is already in its own namespaces.
func inside() int {
	if err := runPage(os.Getenv(insideVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runPage(root string) error {
	if err := makeSystem(root); err != nil {
		return fmt.Errorf("make a system for the page: %w", err)
	}
	page, err := os.ReadFile(os.Getenv("PAGE"))
	if err != nil {
		return err
	}
	// Tenants need a target that does not load lvstores written by hosts. So does the doctor
	// command, which would report a finding for any other target.
	safe := strings.Contains(string(page), "tenants.yaml") || regexp.MustCompile(`(spdk-csi|spdkgate) doctor`).Match(page)
	target, err := spdktest.Start(spdktest.Options{Socket: "/var/tmp/spdk.sock", DataDir: "/var/tmp/data", ExamineListed: safe})
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	// The program yes answers every password prompt with the same password.
	cmd := exec.Command("bash", "-c", `exec bash "$PAGE" < <(exec yes "$SPDK_PROXY_PASSWORD" 2>/dev/null)`)
	cmd.Dir = "/home/admin"
	cmd.Env = append(os.Environ(), "SPDK_PROXY_PASSWORD=OLD-PASSWORD", "HOME="+os.Getenv("HOME"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := makeStore(); err != nil {
		return err
	}
	return cmd.Run()
}

// makeStore creates the lvstore that the manual's examples use.
func makeStore() error {
	if err := os.WriteFile("/var/tmp/disk0", nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate("/var/tmp/disk0", 8<<30); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"bdev_aio_create", "name=disk0", "filename=/var/tmp/disk0", "block_size=4096"},
		{"bdev_lvol_create_lvstore", "bdev_name=disk0", "lvs_name=lvs0"},
	} {
		out, err := exec.Command("spdk-proxy", append([]string{"call", "--socket", "/var/tmp/spdk.sock"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// makeSystem creates the root directory of a page and enters it. Nothing that the page writes
// remains on the host.
func makeSystem(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	// The page's commands use the host's programs, the Go command's caches, and the test's
	// directories.
	shared := []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/tmp", "/sys", os.Getenv("HOME"), os.Getenv("REPOSITORY"), filepath.Dir(os.Args[0])}
	for _, dir := range shared {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
			continue
		case info.Mode()&os.ModeSymlink != 0: // /bin is a link to usr/bin on merged systems
			to, err := os.Readlink(dir)
			if err == nil {
				err = os.Symlink(to, root+dir)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, root+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if out, err := exec.Command("cp", "-a", "/etc", root+"/etc").CombinedOutput(); err != nil {
		return fmt.Errorf("copy /etc: %w: %s", err, out)
	}
	for _, dir := range []string{"/proc", "/run", "/var/tmp", "/var/log", "/var/lib", "/home/admin"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
	}
	hosts := "127.0.0.1 localhost storage-1\n::1 localhost\n"
	err := errors.Join(
		os.WriteFile(root+"/etc/hosts", []byte(hosts), 0o644),
		unix.Mount("proc", root+"/proc", "proc", 0, ""),
		unix.Chroot(root), os.Chdir("/"), unix.Sethostname([]byte("storage-1")))
	if err != nil {
		return err
	}
	return loopbackUp()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(syscall.IFF_UP | syscall.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
