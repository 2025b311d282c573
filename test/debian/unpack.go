package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrUnavailable means that this machine has no Debian package tools.
var ErrUnavailable = errors.New("packages need Debian or a distribution based on it")

// Download downloads the packages and all their dependencies, also those that are installed here, into a new folder
// below dir, and returns the files. apt uses its own folder, so it needs no root.
func Download(ctx context.Context, dir string, packages ...string) ([]string, error) {
	for tool, pkg := range map[string]string{"apt-get": "apt", "dpkg-deb": "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %s is missing (package %s)", ErrUnavailable, tool, pkg)
		}
	}
	apt := filepath.Join(dir, "apt")
	for _, d := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return nil, err
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
			return nil, err
		}
	}
	for _, args := range [][]string{{"update"}, append([]string{"install"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(apt, "apt.conf"), "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastOf(out))
		}
	}
	return filepath.Glob(filepath.Join(apt, "archives", "*.deb"))
}

// Unpack unpacks packages into root, which becomes a system with merged /usr: bin, sbin, lib and lib64 are links into usr.
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
