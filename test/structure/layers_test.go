package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A layer is a set of files of one package. They may refer to names of their own layer and of
// lower layers, but not of higher ones.
type layer struct {
	name  string
	files []string
}

// proxyLayers are the files of package proxy, highest layer first. A reader can start at
// serve.go and follow references downwards only. A change in a lower layer needs no knowledge of
// higher ones.
var proxyLayers = []layer{
	{"serve", []string{"serve.go", "http.go", "console.go", "oidc.go", "tls.go", "reload.go", "scrape.go", "alive.go", "check.go", "thaw.go", "local.go", "calllog.go"}},
	{"request", []string{"rpc.go", "localconn.go", "concurrent.go", "get.go", "own.go", "session.go", "consolecall.go", "access.go", "stream.go", "watchaudit.go", "discover.go", "metrics.go", "targetmetrics.go", "events.go", "eventsource.go", "status.go", "examination.go", "snapshots.go", "lvols.go", "decouple.go", "saving.go", "observe.go", "audit.go", "panics.go", "unread.go"}},
	{"stages", []string{"server.go", "stages.go"}},
	{"values", []string{
		"settings.go", "exchange.go", "balancers.go", "callrates.go", "trace.go", "call.go", "credentials.go", "body.go", "answers.go", "reply.go", "localio.go", "parked.go", "memory.go", "drain.go", "conn.go", "histograms.go",
		"compat.go", "documents.go", "streams.go", "restart.go", "doc.go",
	}},
}

func TestFilesOfProxyReferOnlyDownwards(t *testing.T) {
	folder := filepath.Join("..", "..", "proxy")
	found, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	sources := map[string]string{}
	for _, path := range found {
		if name := filepath.Base(path); !isTest(name) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			sources[name] = string(text)
		}
	}
	problems, err := upwards(sources, proxyLayers, exported(t, "./proxy"))
	require.NoError(t, err)
	for _, p := range problems {
		t.Error(p)
	}
}

// upwards returns the references of a package's files to names of a higher layer, and the
// files that are not in exactly one layer.
func upwards(sources map[string]string, layers []layer, from types.Importer) (problems []string, err error) {
	height := map[string]int{}
	for i, l := range layers {
		for _, f := range l.files {
			if _, twice := height[f]; twice {
				problems = append(problems, f+" is in two layers")
			}
			if _, there := sources[f]; !there {
				problems = append(problems, f+" is in a layer, but the file does not exist")
			}
			height[f] = len(layers) - i
		}
	}
	set := token.NewFileSet()
	var files []*ast.File
	for name, text := range sources {
		if height[name] == 0 {
			problems = append(problems, name+" is in no layer: add it to the layer of its names")
		}
		f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: from}
	checked, err := checker.Check("p", set, files, info)
	if err != nil {
		return nil, err
	}
	for ident, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		here, there := set.Position(ident.Pos()), set.Position(object.Pos())
		if height[here.Filename] < height[there.Filename] {
			problems = append(problems, fmt.Sprintf("%s:%d (layer %s) refers to %s of %s (layer %s): move one of them, so that files refer only downwards",
				here.Filename, here.Line, layers[len(layers)-height[here.Filename]].name, ident.Name, there.Filename, layers[len(layers)-height[there.Filename]].name))
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// exported returns an importer for the dependencies of a package, as compiled by the go command.
func exported(t *testing.T, pattern string) types.Importer {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", pattern)
	cmd.Dir = "../.."
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
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

func isTest(file string) bool {
	return len(file) > len("_test.go") && file[len(file)-len("_test.go"):] == "_test.go"
}

// upwards finds names, methods and fields of a higher layer, and files that are in no layer.
func TestUpwards(t *testing.T) {
	layers := []layer{{"high", []string{"high.go"}}, {"low", []string{"low.go", "lower.go"}}}
	sources := map[string]string{
		"high.go":  "package p\n\ntype T struct{ field int }\n\nfunc (T) method() { low() }\n\nfunc high() {}\n",
		"low.go":   "package p\n\nfunc low() { lower() }\n",
		"lower.go": "package p\n\nfunc lower() {}\n",
	}
	problems, err := upwards(sources, layers, importer.Default())
	require.NoError(t, err)
	assert.Empty(t, problems)

	sources["lower.go"] = "package p\n\nfunc lower() {\n\tvar t T\n\tt.method()\n\tt.field++\n\thigh()\n}\n"
	sources["other.go"] = "package p\n"
	problems, err = upwards(sources, layers, importer.Default())
	require.NoError(t, err)
	require.Len(t, problems, 5)
	for i, says := range []string{"lower.go:4 (layer low) refers to T of high.go", "lower.go:5", "lower.go:6", "lower.go:7", "other.go is in no layer"} {
		assert.Contains(t, problems[i], says)
	}
}
