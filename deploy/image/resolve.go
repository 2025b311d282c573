package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Debian 12, not the latest: file systems made by the newer mkfs of Debian 13 use features that kernels before 5.15 (ext4:
// orphan_file) and 5.19 (XFS: nrext64) refuse to mount.
const release = "bookworm"

const mirror = "http://deb.debian.org/"

var suites = [][2]string{{"debian", release}, {"debian", release + "-updates"}, {"debian-security", release + "-security"}}

// unneeded are dependencies of maintainer scripts, which do not run, and of programs that are left out (see leftOut).
var unneeded = []string{"debconf", "debconf-2.0", "dpkg", "init-system-helpers", "sysvinit-utils", "openssl", "python3", "libicu72", "logsave", "awk"}

// updateLock writes the lock with the current versions of all packages that the recipes need.
func updateLock(ctx context.Context, o options) error {
	l := lock{goVersion: runtime.Version(), snapshot: time.Now().UTC().Format("20060102T150405Z")}
	for _, arch := range o.architectures {
		available := map[string]debian{}
		provided := map[string]string{}
		for _, s := range suites {
			if err := readIndex(ctx, s[0], s[1], arch, available, provided); err != nil {
				return err
			}
		}
		var roots []string
		for _, r := range recipes {
			roots = append(roots, r.packages...)
		}
		found, err := resolve(roots, available, provided)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		for i := range found {
			found[i].arch = arch // that of the index: some packages are for all
		}
		l.packages = append(l.packages, found...)
	}
	return l.write(o.lock)
}

// resolve returns the packages with what they depend on, as names of packages that exist.
func resolve(roots []string, available map[string]debian, provided map[string]string) ([]debian, error) {
	found := map[string]debian{}
	todo := slices.Clone(roots)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if _, done := found[name]; done {
			continue
		}
		p, ok := available[name]
		if !ok {
			return nil, fmt.Errorf("there is no package %s", name)
		}
		var depends []string
		for _, alternatives := range p.depends {
			chosen, err := choose(alternatives, available, provided)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if chosen != "" && !slices.Contains(depends, chosen) {
				depends = append(depends, chosen)
			}
		}
		slices.Sort(depends)
		p.depends = depends
		found[name] = p
		todo = append(todo, depends...)
	}
	var all []debian
	for _, p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b debian) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// choose returns the first alternative that exists; empty if it is not needed.
func choose(alternatives string, available map[string]debian, provided map[string]string) (string, error) {
	for alternative := range strings.SplitSeq(alternatives, "|") {
		name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
		name, _, _ = strings.Cut(name, ":")
		if slices.Contains(unneeded, name) {
			return "", nil
		}
		if _, ok := available[name]; ok {
			return name, nil
		}
		if by, ok := provided[name]; ok {
			return by, nil
		}
	}
	return "", fmt.Errorf("nothing satisfies %s", alternatives)
}

// readIndex adds the packages of a suite, whose index the archive's keys have signed.
func readIndex(ctx context.Context, archive, suite, arch string, available map[string]debian, provided map[string]string) error {
	base := mirror + archive + "/dists/" + suite + "/"
	signed, err := get(ctx, base+"InRelease")
	if err != nil {
		return err
	}
	verify := exec.CommandContext(ctx, "gpgv", "--keyring", "/usr/share/keyrings/debian-archive-keyring.gpg", "--output", "-")
	verify.Stdin = bytes.NewReader(signed)
	verified, err := verify.Output()
	if err != nil {
		return fmt.Errorf("%sInRelease: the signature is not Debian's: %w", base, err)
	}
	name := "main/binary-" + arch + "/Packages.xz"
	index, err := get(ctx, base+name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(strings.Split(string(verified), "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) == 3 && f[0] == digest(index) && f[2] == name
	}) {
		return fmt.Errorf("%s%s is not what InRelease lists: the mirror may just be changing; try again", base, name)
	}
	unpack := exec.CommandContext(ctx, "xz", "-dc")
	unpack.Stdin = bytes.NewReader(index)
	text, err := unpack.Output()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	return parseIndex(ctx, archive, text, available, provided)
}

func parseIndex(ctx context.Context, archive string, text []byte, available map[string]debian, provided map[string]string) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	stanza := map[string]string{}
	add := func() error {
		p := debian{name: stanza["Package"], version: stanza["Version"], sha256: stanza["SHA256"], path: archive + "/" + stanza["Filename"]}
		for _, key := range []string{"Pre-Depends", "Depends"} {
			for group := range strings.SplitSeq(stanza[key], ",") {
				if group = strings.TrimSpace(group); group != "" {
					p.depends = append(p.depends, group)
				}
			}
		}
		for name := range strings.SplitSeq(stanza["Provides"], ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			if provided[name] == "" {
				provided[name] = p.name
			}
		}
		if other, ok := available[p.name]; ok {
			if err := exec.CommandContext(ctx, "dpkg", "--compare-versions", other.version, "gt", p.version).Run(); err == nil {
				return nil
			}
		}
		available[p.name] = p
		return nil
	}
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if err := add(); err != nil {
				return err
			}
			clear(stanza)
		} else if key, value, ok := strings.Cut(line, ": "); ok && line[0] != ' ' {
			stanza[key] = value
		}
	}
	return lines.Err()
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fetch returns the path of a package in the cache, after it has downloaded it unless it is there. When a mirror has replaced the
// version, snapshot.debian.org still has it.
func fetch(ctx context.Context, p debian, snapshot string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "spdkgate-images", p.sha256+".deb")
	if text, err := os.ReadFile(path); err == nil && digest(text) == p.sha256 {
		return path, nil
	}
	text, err := get(ctx, mirror+p.path)
	if err != nil {
		archive, rest, _ := strings.Cut(p.path, "/")
		text, err = get(ctx, "https://snapshot.debian.org/archive/"+archive+"/"+snapshot+"/"+rest)
	}
	if err != nil {
		return "", err
	}
	if digest(text) != p.sha256 {
		return "", fmt.Errorf("%s does not have the digest that %s has: do not use it", p.path, lockFile)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	partial := path + fmt.Sprintf(".%d", os.Getpid())
	if err := os.WriteFile(partial, text, 0o644); err != nil {
		return "", err
	}
	return path, os.Rename(partial, path)
}
