package roles

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

const (
	module = "github.com/spdkgate/spdkgate"
	client = module + "/rpcschema/spdkrpc"
)

// The role csi-controller allows exactly the methods that the driver calls. The test uses the type
// checker to find these calls, which are all uses of the typed client's methods outside tests.
func TestCSIControllerAllowsWhatTheDriverCalls(t *testing.T) {
	p, err := policy.New(nil, map[string]policy.User{"csi": {Roles: []string{policy.CSIController}}}, rpcschema.Default())
	require.NoError(t, err)
	var allowed []string
	for _, m := range p.Methods("csi") {
		assert.True(t, m.Decision.Allowed, "%s must be allowed with any parameters", m.Method)
		allowed = append(allowed, m.Method)
	}
	// the driver calls it before it creates volumes
	want := append(called(t), "spdkgate_target_get_info")
	slices.Sort(want)
	assert.Equal(t, slices.Compact(want), allowed, "expected: what the driver calls; actual: what the role allows (proxy/policy/builtin.go)")
}

// called returns the SPDK methods that packages below driver call.
func called(t *testing.T) []string {
	load := newLoader(t)
	rpcOf := load.rpcs(client)
	var found []string
	packages := 0
	for path := range load.files {
		if path != module+"/driver" && !strings.HasPrefix(path, module+"/driver/") || path == module+"/driver/drivertest" {
			continue // drivertest simulates the proxy
		}
		packages++
		c := load.check(path)
		for at, used := range c.info.Uses {
			switch method := methodOf(used); {
			case method == "", method == "Call" && c.inCaller(at):
			case method == "Call":
				// Caller.Call takes the method as a string.
				assert.Fail(t, "this call bypasses the typed client, so its method is unknown: use a typed method", "%s", load.positions.Position(at.Pos()))
			case rpcOf[method] != nil:
				found = append(found, rpcOf[method]...)
			}
		}
	}
	require.Greater(t, packages, 4, "too few packages of the driver were found")
	slices.Sort(found)
	found = slices.Compact(found)
	require.Greater(t, len(found), 20)
	return found
}

// methodOf returns the name of a method of spdkrpc's Client or Caller. For any other object, it
// returns "".
func methodOf(used types.Object) string {
	f, ok := used.(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != client {
		return ""
	}
	receiver := f.Signature().Recv()
	if receiver == nil {
		return ""
	}
	of := receiver.Type()
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	if named, ok := of.(*types.Named); ok && slices.Contains([]string{"Client", "Caller"}, named.Obj().Name()) {
		return f.Name()
	}
	return ""
}

// A loader type-checks this module's packages from source, and imports their dependencies from the
// compiler's export data.
type loader struct {
	t         *testing.T
	positions *token.FileSet
	files     map[string][]string // of each package of this module
	exports   map[string]string
	imports   types.Importer
}

func newLoader(t *testing.T) *loader {
	l := &loader{t: t, positions: token.NewFileSet(), files: map[string][]string{}, exports: map[string]string{}}
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", module+"/driver/...", client)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		l.exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module) {
			for _, f := range p.GoFiles {
				l.files[p.ImportPath] = append(l.files[p.ImportPath], filepath.Join(p.Dir, f))
			}
		}
	}
	l.imports = importer.ForCompiler(l.positions, "gc", func(path string) (io.ReadCloser, error) { return os.Open(l.exports[path]) })
	return l
}

type checked struct {
	files []*ast.File
	info  types.Info
}

// inCaller reports whether a position is in a Caller's Call method that passes its arguments to
// another Caller.
func (c checked) inCaller(at ast.Node) bool {
	for _, f := range c.files {
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if ok && method.Recv != nil && method.Name.Name == "Call" && method.Pos() <= at.Pos() && at.Pos() < method.End() {
				return true
			}
		}
	}
	return false
}

func (l *loader) check(path string) checked {
	c := checked{info: types.Info{Uses: map[*ast.Ident]types.Object{}}}
	for _, name := range l.files[path] {
		f, err := parser.ParseFile(l.positions, name, nil, parser.SkipObjectResolution)
		require.NoError(l.t, err)
		c.files = append(c.files, f)
	}
	_, err := (&types.Config{Importer: l.imports}).Check(path, l.positions, c.files, &c.info)
	require.NoError(l.t, err, path)
	return c
}

// rpcs maps each of the client's methods to the SPDK methods that it calls, directly or through
// other methods of the client.
func (l *loader) rpcs(path string) map[string][]string {
	names, uses := map[string][]string{}, map[string][]string{}
	c := l.check(path)
	for _, f := range c.files {
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Body == nil {
				continue
			}
			ast.Inspect(method.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						if _, known := rpcschema.Default().Method(text); known {
							names[method.Name.Name] = append(names[method.Name.Name], text)
						}
					}
				case *ast.Ident:
					if used := methodOf(c.info.Uses[n]); used != "" {
						uses[method.Name.Name] = append(uses[method.Name.Name], used)
					}
				}
				return true
			})
		}
	}
	all := map[string][]string{}
	for name := range names {
		all[name] = nil
	}
	for name := range uses {
		all[name] = nil
	}
	for name := range all {
		seen := map[string]bool{}
		var collect func(string)
		collect = func(method string) {
			if seen[method] {
				return
			}
			seen[method] = true
			all[name] = append(all[name], names[method]...)
			for _, next := range uses[method] {
				collect(next)
			}
		}
		collect(name)
	}
	return all
}
