package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources calls visit for each Go file in the repository, regardless of its build tags and its
// module. The path is relative to the repository.
func sources(t *testing.T, visit func(file string, set *token.FileSet, parsed *ast.File)) {
	t.Helper()
	const root = "../../.."
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == filepath.Join(root, "bin") || name == filepath.Join(root, ".git") || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution|parser.ParseComments)
		if err == nil && !ast.IsGenerated(parsed) {
			visit(file, set, parsed)
		}
		return err
	}))
}

// Names such as len and config.Load must always have their usual meaning.
func TestNamesShadowNeitherPackagesNorBuiltins(t *testing.T) {
	files := 0
	sources(t, func(_ string, set *token.FileSet, parsed *ast.File) {
		files++
		for _, p := range shadows(set, parsed) {
			t.Error(p)
		}
	})
	assert.Greater(t, files, 500)
}

// shadows returns the declarations in a file that have the name of an imported package or of a
// builtin. Fields and methods do not shadow names.
func shadows(set *token.FileSet, file *ast.File) (problems []string) {
	imported := map[string]bool{}
	for _, i := range file.Imports {
		if name := importedAs(i); name != "_" && name != "." {
			imported[name] = true
		}
	}
	declared := func(idents ...*ast.Ident) {
		for _, i := range idents {
			kind := ""
			switch {
			case imported[i.Name]:
				kind = "a package that the file imports"
			case types.Universe.Lookup(i.Name) != nil:
				kind = "a builtin"
			default:
				continue
			}
			problems = append(problems, fmt.Sprintf("%s: %s is also the name of %s: choose another one", set.Position(i.Pos()), i.Name, kind))
		}
	}
	fields := func(lists ...*ast.FieldList) {
		for _, l := range lists {
			if l != nil {
				for _, f := range l.List {
					declared(f.Names...)
				}
			}
		}
	}
	expressions := func(defines token.Token, list ...ast.Expr) {
		for _, e := range list {
			if i, ok := e.(*ast.Ident); ok && defines == token.DEFINE {
				declared(i)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if fields(n.Recv); n.Recv == nil {
				declared(n.Name)
			}
		case *ast.FuncType: // covers declarations, literals and interface methods
			fields(n.TypeParams, n.Params, n.Results)
		case *ast.AssignStmt:
			expressions(n.Tok, n.Lhs...)
		case *ast.RangeStmt:
			expressions(n.Tok, n.Key, n.Value)
		case *ast.ValueSpec:
			declared(n.Names...)
		case *ast.TypeSpec:
			fields(n.TypeParams)
			declared(n.Name)
		}
		return true
	})
	return problems
}

var version = regexp.MustCompile(`[/.]v[0-9]+$`)

// importedAs returns the name by which a file refers to a package. By convention, a package's name
// is the last part of its path.
func importedAs(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	importPath, _ := strconv.Unquote(i.Path.Value)
	return strings.TrimPrefix(path.Base(version.ReplaceAllString(importPath, "")), "go-")
}

func TestShadowedNamesAreFound(t *testing.T) {
	const source = `package p

import (
	"fmt"
	"time"
	_ "embed"

	"example.com/go-config/v2"
	other "path"
	"gopkg.in/yaml.v3"
)

type len struct{ time int }

func (fmt len) copy(a, max int) (yaml error) {
	for config := range 3 {
		var time, c = 1, 2
		b, other := 3, 4
		b, fine := 5, fmt.time
	}
	_ = func(new int) {}
	switch cap := a.(type) {
	}
	return nil
}

func path[any int](embed int) (_ func(time int)) { time := len{time: 1}; return nil }
`
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "f.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	var found []string
	for _, p := range shadows(set, parsed) {
		position, rest, _ := strings.Cut(p, ": ")
		name, _, _ := strings.Cut(rest, " ")
		_, line, _ := strings.Cut(position, ":")
		line, _, _ = strings.Cut(line, ":")
		found = append(found, line+" "+name)
	}
	assert.Equal(t, []string{"13 len", "15 fmt", "15 max", "15 yaml", "16 config", "17 time", "18 other", "21 new", "22 cap", "27 any", "27 time", "27 time"}, found)
}
