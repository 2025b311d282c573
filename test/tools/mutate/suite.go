package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A suite is a package with tests, whose binary contains all mutants.
type suite struct {
	pkg
	dir     string // of the binary
	overlay string
	changed []string // import paths of the packages with mutants

	mu       sync.Mutex // held while the tests run
	limit    time.Duration
	prepared bool
	err      error
	blocks   map[string][]block // by import path and file name
}

// A verdict is the result of the tests for a mutant.
type verdict string

const (
	killed   verdict = "killed"
	hung     verdict = "hung"
	survived verdict = "survived"
)

// prepare builds the binary, checks that the short tests pass without any change, and records the
// lines that they execute. If the tests failed, for example because a program is missing, every
// change would count as detected. The caller holds s.mu.
func (s *suite) prepare(ctx context.Context, timeout time.Duration) error {
	if s.prepared {
		return s.err
	}
	s.prepared = true
	if s.dir, s.err = openDir(s.dir); s.err != nil {
		return s.err
	}
	// A second binary is necessary, because the go command ignores overlays when it prepares files
	// for coverage.
	binary, profile := filepath.Join(s.dir, "covered"), filepath.Join(s.dir, "profile")
	s.err = errors.Join(s.build(ctx, filepath.Join(s.dir, "test"), s.overlay),
		s.build(ctx, binary, "", "-covermode=atomic", "-coverpkg="+strings.Join(s.changed, ",")))
	if s.err != nil {
		return s.err
	}
	s.limit = timeout
	began := time.Now()
	args := []string{"-test.short", "-test.coverprofile=" + profile, "-test.gocoverdir=" + s.dir}
	v, output := s.execute(ctx, binary, args...)
	if v != survived && ctx.Err() == nil { // a busy machine may have made a test fail
		began = time.Now()
		v, output = s.execute(ctx, binary, args...)
	}
	if v != survived {
		s.err = cmp.Or(context.Cause(ctx), fmt.Errorf("the tests of %s fail even without a change, so changes cannot be tested: %s", s.ImportPath, output))
		return s.err
	}
	s.limit = min(timeout, 30*time.Second+10*time.Since(began))
	text, err := os.ReadFile(profile)
	s.blocks, s.err = blocks(string(text)), err
	return s.err
}

// build builds the test binary with an overlay.
func (s *suite) build(ctx context.Context, binary, overlay string, args ...string) error {
	args = slices.Concat([]string{"test", "-c", "-o", binary, "-vet=off", "-overlay", overlay}, args, []string{s.ImportPath})
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %s", s.ImportPath, out)
	}
	return nil
}

// try runs the suite's short tests with the mutant if they execute its line, or all tests if long
// is set. test is the first test that failed.
func (s *suite) try(ctx context.Context, m mutant, timeout time.Duration, long bool) (v verdict, test string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prepare(ctx, timeout); err != nil {
		return "", "", err
	}
	if !long && !s.covers(m) {
		return survived, "", nil
	}
	dir, err := openDir(s.dir)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "test")
	if m.apart {
		overlay, err := writeOwnOverlay(dir, m)
		if err == nil {
			err = s.build(ctx, binary, overlay)
		}
		if err != nil {
			return "", "", err
		}
	} else {
		code, err := os.ReadFile(filepath.Join(s.dir, "test"))
		if err != nil {
			return "", "", err
		}
		code = bytes.ReplaceAll(code, []byte(chosen(0)), []byte(chosen(m.number)))
		if err := os.WriteFile(binary, code, 0o755); err != nil {
			return "", "", err
		}
	}
	args := []string{"-test.short"}
	if long {
		args = nil
	}
	for range 2 { // a busy machine may make a test fail
		v, output := s.execute(ctx, binary, args...)
		failed := failedTest.FindStringSubmatch(output)
		if v == survived || failed == nil {
			return v, s.ImportPath, ctx.Err()
		}
		test = s.ImportPath + " " + failed[1]
		alone, said := s.execute(ctx, filepath.Join(s.dir, "test"), append(slices.Clone(args), "-test.run=^"+failed[1]+"$")...)
		if alone == survived {
			return v, test, ctx.Err()
		}
		err = fmt.Errorf("%s fails even without a change: %s", test, said)
	}
	return "", "", cmp.Or(ctx.Err(), err)
}

var failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)

// covers reports whether the short tests execute the changed line, or may do so because the line is
// not in a function.
func (s *suite) covers(m mutant) bool {
	known := false
	for _, b := range s.blocks[m.pkg.ImportPath+"/"+filepath.Base(m.file)] {
		if b.from <= m.reached && m.reached <= b.to {
			if known = true; b.executed {
				return true
			}
		}
	}
	return !known
}

// hasLongTests reports whether -short skips any of the package's tests.
func (p pkg) hasLongTests() bool {
	return slices.ContainsFunc(slices.Concat(p.TestGoFiles, p.XTestGoFiles), func(name string) bool {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		return err != nil || bytes.Contains(source, []byte("testing.Short()"))
	})
}

// openDir creates a directory that every user can read, because some tests change their user.
func openDir(parent string) (dir string, err error) {
	if dir, err = os.MkdirTemp(parent, "m-"); err == nil {
		err = os.Chmod(dir, 0o755)
	}
	return dir, err
}

// execute runs a test binary with its own directory for temporary files. The directory's name is
// short because it is part of the paths of the tests' UNIX sockets, which may have at most 107
// bytes.
func (s *suite) execute(ctx context.Context, binary string, args ...string) (v verdict, output string) {
	limit := s.limit
	if len(args) == 0 { // the long tests
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir, err := openDir("")
	if err != nil {
		return killed, err.Error()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, binary, append(args, "-test.failfast", "-test.timeout="+(2*limit).String())...)
	cmd.Dir = s.Dir
	// Processes that the tests start from their own binary record their coverage in GOCOVERDIR.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "GOCOVERDIR="+s.dir)
	// The output goes to a file instead of a pipe, because processes that a killed test has started
	// may keep a pipe open.
	said, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return killed, err.Error()
	}
	cmd.Stdout, cmd.Stderr = said, said
	err = errors.Join(cmd.Run(), said.Close())
	out, _ := os.ReadFile(said.Name())
	switch {
	case ctx.Err() != nil:
		return hung, string(out)
	case err != nil:
		return killed, string(out)
	}
	return survived, string(out)
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
