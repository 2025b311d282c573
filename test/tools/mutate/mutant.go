package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A pkg is a package as `go list` describes it.
type pkg struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string

	Imports, TestImports, XTestImports []string

	short     bool        // leave out the tests that -short leaves out
	importers []*importer // whose short tests are tried if no test of the package fails
}

// load lists the packages that have tests.
func load(ctx context.Context, patterns []string) ([]pkg, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// A mutant replaces one token with another.
type mutant struct {
	pkg      pkg
	file     string // its path
	line     int
	from, to int // bytes of the token
	old, new string
}

func (m mutant) place() string {
	name := m.file
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, m.file); err == nil {
			name = short
		}
	}
	return fmt.Sprintf("%s:%d", name, m.line)
}

func (m mutant) what() string   { return fmt.Sprintf("%s → %s", m.old, m.new) }
func (m mutant) String() string { return m.place() + ": " + m.what() }

func (m mutant) compare(o mutant) int {
	return cmp.Or(cmp.Compare(m.file, o.file), cmp.Compare(m.from, o.from))
}

// swaps holds the replacements for each operator.
var swaps = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
}

// mutants returns all possible changes to a package's files, except generated ones.
func mutants(p pkg) (all []mutant, err error) {
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		add := func(at token.Pos, old string, becomes ...string) {
			where := set.Position(at)
			for _, to := range becomes {
				all = append(all, mutant{pkg: p, file: path, line: where.Line, from: where.Offset, to: where.Offset + len(old), old: old, new: to})
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				for _, to := range swaps[n.Op] {
					add(n.OpPos, n.Op.String(), to.String())
				}
			case *ast.UnaryExpr:
				if n.Op == token.NOT {
					add(n.OpPos, "!", "")
				}
			case *ast.Ident:
				switch n.Name {
				case "true":
					add(n.Pos(), "true", "false")
				case "false":
					add(n.Pos(), "false", "true")
				}
			case *ast.BasicLit:
				if i, err := strconv.ParseInt(n.Value, 10, 32); n.Kind == token.INT && err == nil {
					add(n.Pos(), n.Value, strconv.FormatInt(i+1, 10))
				}
			case *ast.ReturnStmt:
				if len(n.Results) > 0 {
					if id, ok := n.Results[len(n.Results)-1].(*ast.Ident); ok && id.Name != "nil" && strings.HasSuffix(id.Name, "err") {
						add(id.Pos(), id.Name, "nil")
					}
				}
			case *ast.BranchStmt:
				switch {
				case n.Label != nil:
				case n.Tok == token.BREAK:
					add(n.Pos(), "break", "continue")
				case n.Tok == token.CONTINUE:
					add(n.Pos(), "continue", "break")
				}
			case *ast.ImportSpec, *ast.CommentGroup, *ast.Field:
				return false
			}
			return true
		})
	}
	slices.SortFunc(all, mutant.compare)
	return all, nil
}

// The results of trying a mutant.
type verdict string

const (
	killed   verdict = "killed"
	hung     verdict = "hung"
	survived verdict = "survived"
	invalid  verdict = "invalid" // does not compile
)

type result struct {
	mutant  mutant
	verdict verdict
	test    string // the first test that failed
	err     error
}

var failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)

// try runs the tests of the mutant's package: first the short ones, then all if no short one
// failed, then those of its importers.
func (m mutant) try(ctx context.Context, timeout time.Duration) (r result) {
	r.mutant = m
	// The name is short because it begins the paths of the tests' UNIX sockets, which may have at
	// most 107 bytes.
	dir, err := os.MkdirTemp("", "m-")
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, err := os.ReadFile(m.file)
	if err != nil {
		r.err = err
		return r
	}
	changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	text := slices.Concat(source[:m.from], []byte(m.new), source[m.to:])
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	if err = errors.Join(err, os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		r.err = err
		return r
	}
	var output string
	if r.verdict, output = m.pkg.test(ctx, timeout, dir, []string{"-overlay", overlay}); r.verdict != survived {
		r.test = firstFailure(output)
		return r
	}
	for _, i := range m.pkg.importers {
		covered, err := i.covers(ctx, timeout, m)
		if err != nil {
			r.err = err
			return r
		}
		if !covered {
			continue
		}
		if r.verdict, output = i.test(ctx, timeout, dir, []string{"-overlay", overlay}); r.verdict != survived {
			r.test = firstFailure(output)
			return r
		}
	}
	return r
}

// firstFailure returns the name of the first test that failed or panicked.
func firstFailure(output string) string {
	if failed := failedTest.FindStringSubmatch(output); failed != nil {
		return failed[1]
	}
	return ""
}

// test builds the package's tests in dir, with the arguments in build, and runs them with those
// in run. output is their output.
func (p pkg) test(ctx context.Context, timeout time.Duration, dir string, build []string, run ...string) (v verdict, output string) {
	if err := os.Chmod(dir, 0o755); err != nil { // some tests change their user
		return invalid, err.Error()
	}
	binary := filepath.Join(dir, "test")
	args := append([]string{"test", "-c", "-o", binary, "-vet=off"}, build...)
	if out, err := exec.CommandContext(ctx, "go", append(args, p.ImportPath)...).CombinedOutput(); err != nil {
		return invalid, string(out)
	}
	v, output = p.execute(ctx, timeout, dir, binary, append(run, "-test.short")...)
	if v == survived && !p.short && p.hasLongTests() {
		return p.execute(ctx, timeout, dir, binary)
	}
	return v, output
}

// hasLongTests reports whether -short leaves out a test of the package.
func (p pkg) hasLongTests() bool {
	return slices.ContainsFunc(slices.Concat(p.TestGoFiles, p.XTestGoFiles), func(name string) bool {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		return err != nil || bytes.Contains(source, []byte("testing.Short()"))
	})
}

// execute runs the package's test binary.
func (p pkg) execute(ctx context.Context, timeout time.Duration, dir, binary string, args ...string) (v verdict, output string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "-test.failfast", "-test.timeout="+(2*timeout).String())...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	// This is a file and not a pipe, because processes started by a killed test may keep its output
	// open.
	said, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return invalid, err.Error()
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

// sound checks that the tests of a package pass without any change. If they failed, for example
// because a program is missing, every change to the package would count as detected.
func (p pkg) sound(ctx context.Context, timeout time.Duration) error {
	dir, err := os.MkdirTemp("", "m-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if v, output := p.test(ctx, timeout, dir, nil); v != survived && ctx.Err() == nil {
		return fmt.Errorf("the tests of %s fail even without a change, so changes cannot be tested: %s", p.ImportPath, output)
	}
	return nil
}
