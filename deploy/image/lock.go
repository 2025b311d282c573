package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

const lockFile = "deploy/image/packages.lock"

// A debian is a Debian package in a program's image for one architecture.
type debian struct {
	program, arch, name, version string
	sha256                       string
	path                         string // below a mirror's root, such as debian/pool/main/…
}

// A lock records all inputs of an image build except the source. goVersion is the compiler's
// version. snapshot is the time of a snapshot on snapshot.debian.org that contains all packages.
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
		case len(f) == 6 && len(f[4]) == 64:
			l.packages = append(l.packages, debian{f[0], f[1], f[2], f[3], f[4], f[5]})
		default:
			return l, fmt.Errorf("%s:%d: not a valid lock line: write the file with make image-lock", path, n)
		}
	}
	return l, lines.Err()
}

func (l lock) write(path string) error {
	var b strings.Builder
	b.WriteString("# What the images are made of besides the source: the compiler, and Debian's packages. Written by make image-lock.\n")
	b.WriteString("# PROGRAM ARCHITECTURE PACKAGE VERSION SHA256 PATH\n")
	fmt.Fprintf(&b, "go %s\nsnapshot %s\n", l.goVersion, l.snapshot)
	for _, p := range l.packages {
		fmt.Fprintln(&b, p.program, p.arch, p.name, p.version, p.sha256, p.path)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// of returns the packages in an image.
func (l lock) of(r recipe, arch string) ([]debian, error) {
	var found []debian
	for _, p := range l.packages {
		if p.program == r.program && p.arch == arch {
			found = append(found, p)
		}
	}
	for _, name := range r.packages {
		if !slices.ContainsFunc(found, func(p debian) bool { return p.name == name }) {
			return nil, fmt.Errorf("%s does not have %s for %s and %s: run make image-lock", lockFile, name, r.program, arch)
		}
	}
	return found, nil
}
