package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrUnavailable means that this machine does not have Debian's package tools.
var ErrUnavailable = errors.New("packages require Debian or a distribution based on it")

// Download downloads the packages and all their dependencies, even those already installed, to a
// new directory below dir, and returns the files. apt uses a directory of its own, so it does not
// need root.
func Download(ctx context.Context, dir string, packages ...string) ([]string, error) {
	apt, err := update(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := run(ctx, apt, append([]string{"install"}, packages...)...); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(apt, "archives", "*.deb"))
}

// DownloadAlone is like Download, but for one package without its dependencies.
func DownloadAlone(ctx context.Context, dir, name string) (string, error) {
	apt, err := update(ctx, dir)
	if err != nil {
		return "", err
	}
	if err := run(ctx, apt, "download", name); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(apt, "*.deb"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("apt-get download %s returned %d files", name, len(files))
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// update creates a directory for apt below dir, with current package lists.
func update(ctx context.Context, dir string) (apt string, err error) {
	for tool, pkg := range map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %s is missing (package %s)", ErrUnavailable, tool, pkg)
		}
	}
	apt = filepath.Join(dir, "apt")
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return "", err
		}
	}
	config := fmt.Sprintf(`
		Dir::State::lists "%[1]s/lists";
		Dir::State::status "%[1]s/status";
		Dir::Cache "%[1]s";
		Dir::Cache::archives "%[1]s/archives";
		APT::Sandbox::User "";
		APT::Install-Recommends "false";
		APT::Get::Download-Only "true";
		APT::Get::Assume-Yes "true";
		Debug::NoLocking "true";
	`, apt)
	for name, text := range map[string]string{"apt.conf": config, "status": ""} {
		if err := os.WriteFile(filepath.Join(apt, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return apt, run(ctx, apt, "update")
}

// run runs apt-get in its directory.
func run(ctx context.Context, apt string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Dir = apt
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(apt, "apt.conf"), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastOf(out))
	}
	return nil
}

// Unpack unpacks packages into root, with a merged /usr: bin, sbin, lib and lib64 are links to
// directories in usr.
func Unpack(ctx context.Context, root string, debs ...string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", d), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return err
		}
	}
	for _, deb := range debs {
		if err := unpack(ctx, root, deb); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

func unpack(ctx context.Context, root, deb string) error {
	from := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	to := exec.CommandContext(ctx, "tar", "--extract", "--keep-directory-symlink", "--directory", root)
	pipe, err := from.StdoutPipe()
	if err != nil {
		return err
	}
	to.Stdin = pipe
	if err := from.Start(); err != nil {
		return err
	}
	out, err := to.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, lastOf(out))
	}
	return errors.Join(err, from.Wait())
}

func lastOf(out []byte) string { return string(out[max(0, len(out)-2000):]) }
