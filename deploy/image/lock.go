package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

const lockFile = "deploy/image/packages.lock"

// A debian is one Debian package for one architecture.
type debian struct {
	arch, name, version string
	sha256              string
	path                string // below the root of a mirror, such as debian/pool/main/…
	depends             []string
}

// A lock names everything that images are made of besides the source. goVersion is that of the compiler, snapshot the time
// at which snapshot.debian.org has all of the packages.
type lock struct {
	goVersion, snapshot string
	packages            []debian
}

func readLock(path string) (l lock, err error) {
	file, err := os.Open(path)
	if err != nil {
		return l, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case len(f) == 2 && f[0] == "go":
			l.goVersion = f[1]
		case len(f) == 2 && f[0] == "snapshot":
			l.snapshot = f[1]
		case len(f) == 6 && len(f[3]) == 64:
			p := debian{arch: f[0], name: f[1], version: f[2], sha256: f[3], path: f[4]}
			if f[5] != "-" {
				p.depends = strings.Split(f[5], ",")
			}
			l.packages = append(l.packages, p)
		default:
			return l, fmt.Errorf("%s:%d: not a line of a lock: write the file with make image-lock", path, n)
		}
	}
	return l, lines.Err()
}

func (l lock) write(path string) error {
	var b strings.Builder
	b.WriteString("# What the images are made of besides the source: the compiler, and Debian's packages. Written by make image-lock.\n")
	b.WriteString("# ARCHITECTURE PACKAGE VERSION SHA256 PATH DEPENDS-ON\n")
	fmt.Fprintf(&b, "go %s\nsnapshot %s\n", l.goVersion, l.snapshot)
	for _, p := range l.packages {
		depends := strings.Join(p.depends, ",")
		if depends == "" {
			depends = "-"
		}
		fmt.Fprintln(&b, p.arch, p.name, p.version, p.sha256, p.path, depends)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// closure returns the packages with everything that they depend on, sorted by name.
func (l lock) closure(arch string, roots []string) ([]debian, error) {
	found := map[string]debian{}
	todo := slices.Clone(roots)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if _, done := found[name]; done {
			continue
		}
		i := slices.IndexFunc(l.packages, func(p debian) bool { return p.arch == arch && p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s does not have %s for %s: run make image-lock", lockFile, name, arch)
		}
		found[name] = l.packages[i]
		todo = append(todo, l.packages[i].depends...)
	}
	var all []debian
	for _, p := range found {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b debian) int { return strings.Compare(a.name, b.name) })
	return all, nil
}
