package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var roleBlock = regexp.MustCompile("(?s)```yaml\n(roles:\n.*?)```")

// The account that the README has people make for the driver allows what the driver calls, and
// nothing more.
func TestAccountAllowsWhatTheDriverCalls(t *testing.T) {
	readme, err := os.ReadFile("kubernetes/README.md")
	require.NoError(t, err)
	block := roleBlock.FindSubmatch(readme)
	require.NotNil(t, block, "the README shows no role")
	var config struct {
		Roles map[string]struct{ Allow []string }
	}
	require.NoError(t, yaml.UnmarshalStrict(block[1], &config))
	allowed := config.Roles["kubernetes"].Allow
	slices.Sort(allowed)
	assert.Equal(t, calledMethods(t), allowed)
}

// calledMethods are SPDK's methods that the driver's code calls through the typed client, whose
// methods are named mechanically: bdev_lvol_create is BdevLvolCreate.
func calledMethods(t *testing.T) []string {
	t.Helper()
	byGoName := map[string]string{}
	for _, m := range rpcschema.Default().Methods() {
		byGoName[strings.ReplaceAll(m.Name, "_", "")] = m.Name
	}
	// The client asks for the release, to fit requests to it.
	called := []string{"spdk_get_version"}
	err := filepath.WalkDir(filepath.Join(repository, "driver"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if method, ok := byGoName[strings.ToLower(s.Sel.Name)]; ok {
					called = append(called, method)
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	slices.Sort(called)
	return slices.Compact(called)
}
