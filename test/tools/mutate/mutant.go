package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A pkg is a package as `go list` describes it.
type pkg struct {
	Dir, ImportPath                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Deps                               []string // of its test binary
}

// load lists the packages that have tests.
func load(ctx context.Context, patterns []string) ([]pkg, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-test", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Deps"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []pkg
	deps := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if tested, ok := strings.CutSuffix(p.ImportPath, ".test"); ok {
			for _, d := range p.Deps { // "b [a.test]" is b, compiled for the tests of a
				d, _, _ = strings.Cut(d, " ")
				deps[tested] = append(deps[tested], d)
			}
		} else if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && !strings.Contains(p.ImportPath, " ") {
			packages = append(packages, p)
		}
	}
	for i, p := range packages {
		packages[i].Deps = deps[p.ImportPath]
	}
	return packages, nil
}

// A mutant replaces one token with another.
type mutant struct {
	pkg      pkg
	file     string // its path
	line     int
	reached  int // the line whose execution means that the token is executed
	from, to int // bytes of the token
	old, new string

	number int  // in the sample, from 1
	apart  bool // outside functions, so it needs a binary of its own
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

// A clause is the range of the expressions after a case. A coverage profile assigns them to the
// statements below them, although they are executed together with the switch or select.
type clause struct{ from, to, reached token.Pos }

func clausesOf(reached token.Pos, body *ast.BlockStmt) (all []clause) {
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.CaseClause:
			all = append(all, clause{s.Case, s.Colon, reached})
		case *ast.CommClause:
			all = append(all, clause{s.Case, s.Colon, reached})
		}
	}
	return all
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
		var clauses []clause
		add := func(at token.Pos, old string, becomes ...string) {
			where := set.Position(at)
			reached := at
			for _, c := range clauses {
				if c.from <= at && at < c.to {
					reached = c.reached
				}
			}
			for _, to := range becomes {
				all = append(all, mutant{pkg: p, file: path, line: where.Line, reached: set.Position(reached).Line, from: where.Offset, to: where.Offset + len(old), old: old, new: to})
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SwitchStmt:
				clauses = append(clauses, clausesOf(n.Pos(), n.Body)...)
			case *ast.SelectStmt:
				clauses = append(clauses, clausesOf(n.Pos(), n.Body)...)
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
