package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/spdkgate/spdkgate"

// roots lists the module's top-level directories that contain packages.
var roots = []string{"rpcschema", "lvstore", "proxy", "driver", "cmd", "deploy", "systemd", "test"}

// A pkg is a package in this module as `go list` describes it. Paths within the module are relative
// to its root, which keeps rules and messages short.
type pkg struct {
	ImportPath, Name, Dir, Doc string
	Imports                    []string // by the package itself
	TestImports, XTestImports  []string
	Deps                       []string // every package linked into it
	GoFiles                    []string
	TestGoFiles, XTestGoFiles  []string
}

func (p pkg) path() string { return relative(p.ImportPath) }

// within reports whether importPath is one of the roots or is below one of them. "." is the
// module's root.
func within(importPath string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return importPath == root || strings.HasPrefix(importPath, root+"/")
	})
}

func relative(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// standard reports whether a path belongs to the standard library. Paths of other modules begin
// with a domain, and paths in this module with one of its roots.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".") && !slices.Contains(roots, first)
}

var load = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Doc,Imports,TestImports,XTestImports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = "../../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + ": " + stderr.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		for _, list := range [][]string{p.Imports, p.TestImports, p.XTestImports, p.Deps} {
			for i := range list {
				list[i] = relative(list[i])
			}
		}
		pkgs = append(pkgs, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := load()
	require.NoError(t, err)
	require.NotEmpty(t, pkgs)
	return pkgs
}

// elements returns the parts of an import path.
func elements(importPath string) []string { return strings.Split(path.Clean(importPath), "/") }

// exported returns an importer for packages and their dependencies, as compiled by the go command.
func exported(t *testing.T, patterns ...string) types.Importer {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, patterns...)...)
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(importPath string) (io.ReadCloser, error) { return os.Open(files[importPath]) })
}
