package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Use Debian 12, not the latest release. File systems created by the newer mkfs in Debian 13 use
// features that kernels before 5.15 (ext4: orphan_file) and 5.19 (XFS: nrext64) refuse to mount.
const release = "bookworm"

const mirror = "http://deb.debian.org/"

// debianKeys is the option in apt's sources that names the keys for verifying Debian's indexes.
const debianKeys = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"

var suites = [][2]string{{"debian", release}, {"debian", release + "-updates"}, {"debian-security", release + "-security"}}

// unneeded lists packages that are dependencies only of maintainer scripts, which do not run, or of
// omitted programs (see leftOut).
var unneeded = []string{"debconf", "debconf-2.0", "dpkg", "init-system-helpers", "sysvinit-utils", "openssl", "python3", "libicu72", "logsave", "awk"}

// updateLock writes the lock with the current versions of all packages that the recipes need.
func updateLock(ctx context.Context, o options) error {
	l := lock{goVersion: runtime.Version(), snapshot: time.Now().UTC().Format("20060102T150405Z")}
	for _, arch := range o.architectures {
		found, err := resolve(ctx, arch, mirror, debianKeys)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		l.packages = append(l.packages, found...)
	}
	return l.write(o.lock)
}

// resolve returns each recipe's packages and their dependencies, as apt chooses them from a mirror.
func resolve(ctx context.Context, arch, mirror, keys string) (all []debian, err error) {
	root, err := os.MkdirTemp("", "apt-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := configureApt(root, arch, mirror, keys); err != nil {
		return nil, err
	}
	if _, err := apt(ctx, root, "update"); err != nil {
		return nil, err
	}
	for _, r := range recipes {
		out, err := apt(ctx, root, append([]string{"install", "--print-uris"}, r.packages...)...)
		if err != nil {
			return nil, err
		}
		found, err := parseURIs(out, mirror)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			p.program, p.arch = r.program, arch // use the architecture of the index, because some packages are for all architectures
			all = append(all, p)
		}
	}
	return all, nil
}

// configureApt prepares a directory in which apt-get works without root and without the host's
// configuration and packages. The unneeded packages count as installed there, so that apt does not
// choose them.
func configureApt(root, arch, mirror, keys string) error {
	var sources, status strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&sources, "deb [%s] %s%s %s main\n", keys, mirror, s[0], s[1])
	}
	for _, name := range unneeded {
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nVersion: 999:0\nArchitecture: %s\nMulti-Arch: allowed\n\n", name, arch)
	}
	// Without Error-Mode, apt ignores download errors for an index, such as the index of the
	// security updates.
	config := fmt.Sprintf(`Dir "%s";
Dir::State::status "%[1]s/status";
APT::Architecture "%s";
APT::Architectures { "%[2]s"; };
APT::Install-Recommends "false";
APT::Update::Error-Mode "any";
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
`, root, arch)
	err := os.Chmod(root, 0o755) // as root, apt downloads as another user
	for _, dir := range []string{"etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for name, text := range map[string]string{"apt.conf": config, "status": status.String(), "etc/apt/sources.list": sources.String()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return err
}

// apt runs apt-get with the configuration in root and returns its output.
func apt(ctx context.Context, root string, args ...string) (string, error) {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq"}, args...)...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(root, "apt.conf"), "LC_ALL=C")
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("apt-get %s: %w: %s", args[0], err, log.Bytes())
	}
	return string(out), nil
}

// printed matches a line from apt-get's --print-uris: URL, NAME_VERSION_ARCHITECTURE.deb, size and
// digest.
var printed = regexp.MustCompile(`^'(\S+)' ([^_ ]+)_([^_ ]+)_[^_ ]+\.deb \d+ SHA256:([0-9a-f]{64})$`)

// parseURIs parses the output of apt-get's --print-uris. The packages are sorted by name.
func parseURIs(out, mirror string) (all []debian, err error) {
	for line := range strings.Lines(out) {
		m := printed.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || !strings.HasPrefix(m[1], mirror) {
			return nil, fmt.Errorf("apt-get printed %q, which is not a package of %s with its SHA-256", line, mirror)
		}
		path, err := url.PathUnescape(strings.TrimPrefix(m[1], mirror))
		if err != nil {
			return nil, err
		}
		version, err := url.PathUnescape(m[3])
		if err != nil {
			return nil, err
		}
		all = append(all, debian{name: m[2], version: version, sha256: m[4], path: path})
	}
	slices.SortFunc(all, func(a, b debian) int { return strings.Compare(a.name, b.name) })
	return all, nil
}
