package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An importer is a package whose tests can detect changes to the packages that it imports.
type importer struct {
	pkg
	// changed holds the import paths of the packages to change.
	changed []string

	once   sync.Once
	blocks map[string][]block // by import path and file name
	err    error
}

// addImporters sets the importers of each package: all packages below the current directory that
// import it and have tests.
func addImporters(ctx context.Context, packages []pkg) error {
	all, err := load(ctx, []string{"./..."})
	if err != nil {
		return err
	}
	var changed []string
	for _, p := range packages {
		changed = append(changed, p.ImportPath)
	}
	importers := make([]*importer, len(all))
	for i, other := range all {
		other.short = true
		importers[i] = &importer{pkg: other, changed: changed}
	}
	for i, p := range packages {
		for _, other := range importers {
			if other.ImportPath != p.ImportPath && slices.Contains(slices.Concat(other.Imports, other.TestImports, other.XTestImports), p.ImportPath) {
				packages[i].importers = append(packages[i].importers, other)
			}
		}
	}
	return nil
}

// covers reports whether the importer's short tests execute the changed line, or may do so because
// the line belongs to no function. The first call runs them without any change: it checks that they
// pass, and records the lines that they execute.
func (i *importer) covers(ctx context.Context, timeout time.Duration, m mutant) (bool, error) {
	i.once.Do(func() { i.blocks, i.err = i.profile(ctx, timeout) })
	if i.err != nil {
		return false, i.err
	}
	known := false
	for _, b := range i.blocks[m.pkg.ImportPath+"/"+filepath.Base(m.file)] {
		if b.from <= m.line && m.line <= b.to {
			if known = true; b.executed {
				return true, nil
			}
		}
	}
	return !known, nil
}

// profile runs the importer's short tests, and returns the blocks of the changed packages by file.
func (i *importer) profile(ctx context.Context, timeout time.Duration) (map[string][]block, error) {
	dir, err := os.MkdirTemp("", "m-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := []string{"-covermode=atomic", "-coverpkg=" + strings.Join(i.changed, ",")}
	profile := filepath.Join(dir, "profile")
	if v, output := i.test(ctx, timeout, dir, build, "-test.coverprofile="+profile); v != survived {
		return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("the tests of %s fail even without a change, so changes cannot be tested: %s", i.ImportPath, output))
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return blocks(string(text)), nil
}

// A block is a range of lines in a coverage profile.
type block struct {
	from, to int
	executed bool
}

// profileLine matches a line of a coverage profile: file:line.column,line.column statements count.
var profileLine = regexp.MustCompile(`(?m)^(.+):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$`)

// blocks returns the blocks of a coverage profile by import path and file name.
func blocks(profile string) map[string][]block {
	all := map[string][]block{}
	for _, f := range profileLine.FindAllStringSubmatch(profile, -1) {
		from, _ := strconv.Atoi(f[2])
		to, _ := strconv.Atoi(f[3])
		all[f[1]] = append(all[f[1]], block{from, to, f[4] != "0"})
	}
	return all
}
