package structure

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ofReleases lists the names in package rpcschema that code needs to compare releases.
var ofReleases = []string{"Before", "MustRelease", "Year", "Month"}

var releaseText = regexp.MustCompile("^[\"`]v[0-9]{2}\\.[0-9]{2}[\"`]$")

// Only rpcschema may compare SPDK releases. All other packages query capabilities, so that support
// for a new release changes only one file.
func TestOnlyTheSchemaComparesReleases(t *testing.T) {
	var checked []pkg
	var paths []string
	for _, p := range packages(t) {
		if !within(p.path(), "rpcschema", "test") && slices.Contains(p.Deps, "rpcschema") && len(p.GoFiles) > 0 {
			checked, paths = append(checked, p), append(paths, p.ImportPath)
		}
	}
	require.NotEmpty(t, checked)
	from := exported(t, paths...)
	for _, p := range checked {
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
		found, err := comparisons(set, p.ImportPath, files, from)
		require.NoError(t, err)
		for _, place := range found {
			t.Errorf("%s: %s: ask release.Has for a capability of rpcschema/capability.go, or the schema for a method or parameter", p.path(), place)
		}
	}
}

// comparisons returns the places where a package's files compare SPDK releases or name one.
func comparisons(set *token.FileSet, importPath string, files []*ast.File, from types.Importer) (found []string, err error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	checker := types.Config{Importer: from}
	if _, err := checker.Check(importPath, set, files, info); err != nil {
		return nil, err
	}
	note := func(at token.Pos, what string) {
		where := set.Position(at)
		found = append(found, fmt.Sprintf("%s:%d has %s", filepath.Base(where.Filename), where.Line, what))
	}
	for ident, object := range info.Uses {
		if object.Pkg() != nil && relative(object.Pkg().Path()) == "rpcschema" && slices.Contains(ofReleases, object.Name()) {
			note(ident.Pos(), ident.Name)
		}
	}
	for expr, is := range info.Types {
		switch expr := expr.(type) {
		case *ast.CompositeLit:
			if named, ok := is.Type.(*types.Named); ok && len(expr.Elts) > 0 && named.Obj().Pkg() != nil && relative(named.Obj().Pkg().Path()) == "rpcschema" &&
				slices.Contains([]string{"Release", "Window"}, named.Obj().Name()) {
				note(expr.Pos(), "a literal "+named.Obj().Name())
			}
		case *ast.BasicLit:
			if releaseText.MatchString(expr.Value) {
				note(expr.Pos(), expr.Value)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// comparisons must find every way to compare releases, and nothing else.
func TestReleaseComparisonsAreFound(t *testing.T) {
	set := token.NewFileSet()
	schema := types.NewPackage(module+"/rpcschema", "rpcschema")
	parsed, err := parser.ParseFile(set, "release.go", `package rpcschema

type Release struct{ Year, Month int }
type Window struct{ Since Release }
type Capability struct{}

func (r Release) Before(Release) bool { return false }
func (r Release) Has(Capability) bool { return false }
func (w Window) Has(Release) bool     { return false }
func MustRelease(string) Release      { return Release{} }
func ParseRelease(string) Release     { return Release{} }

var Grows Capability
`, parser.SkipObjectResolution)
	require.NoError(t, err)
	require.NoError(t, types.NewChecker(&types.Config{}, set, schema, nil).Files([]*ast.File{parsed}))
	from := only{schema.Path(): schema}
	for body, want := range map[string][]string{
		`return r.Has(rpcschema.Grows)`:                                       nil,
		`return r == o || w.Has(r)`:                                           nil,
		`return rpcschema.Release{} == r`:                                     nil,
		`return time.Now().Before(time.Now())`:                                nil,
		`println("runs v24.05, not v26.05"); return true`:                     nil,
		`return r.Before(o)`:                                                  {"f.go:6 has Before"},
		`before := r.Before; return before(o)`:                                {"f.go:6 has Before"},
		`return r.Year > 23`:                                                  {"f.go:6 has Year"},
		`return r == (rpcschema.Release{24, 5})`:                              {"f.go:6 has a literal Release"},
		`return rpcschema.Window{Since: o}.Has(r)`:                            {"f.go:6 has a literal Window"},
		`return r == rpcschema.ParseRelease("v24.05")`:                        {`f.go:6 has "v24.05"`},
		`const since = "v24.05"; return fmt.Sprint(r) >= since`:               {`f.go:6 has "v24.05"`},
		`return r == rpcschema.MustRelease(fmt.Sprintf("v%02d.%02d", 24, 5))`: {"f.go:6 has MustRelease"},
	} {
		t.Run(body, func(t *testing.T) {
			text := "package p\n\nimport (\"fmt\"; \"time\"; \"" + schema.Path() + "\")\n\nfunc f(r, o rpcschema.Release, w rpcschema.Window) bool {\n" + body + "\n}\n\nvar _, _ = fmt.Sprint, time.Now\n"
			f, err := parser.ParseFile(set, "f.go", text, parser.SkipObjectResolution)
			require.NoError(t, err)
			found, err := comparisons(set, "p", []*ast.File{f}, from)
			require.NoError(t, err)
			assert.Equal(t, want, found)
		})
	}
}

// The type only is an importer for the packages in the map and for the standard library.
type only map[string]*types.Package

func (o only) Import(path string) (*types.Package, error) {
	if p := o[path]; p != nil {
		return p, nil
	}
	return importer.Default().Import(path)
}
