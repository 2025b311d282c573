package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var namedTest = regexp.MustCompile("`([a-z][a-z0-9/-]*)\\.(Test[A-Za-z0-9]+)`")

// Each row of README's tables of features names a test that exists, or says why there is none.
func TestFeaturesHaveTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	rows := features(string(text))
	require.Greater(t, len(rows), 40)
	tests := map[string]map[string]bool{}
	for _, row := range rows {
		require.Len(t, row, 3, "%v", row)
		named := namedTest.FindAllStringSubmatch(row[2], -1)
		assert.Equal(t, strings.Count(row[2], "`"), 2*len(named), "%s: name tests as `folder.TestName`", row[0])
		if len(named) == 0 {
			assert.Regexp(t, `^(no|planned, not there yet): .{30}`, row[1], "%s: name a test, or say why there is none", row[0])
		}
		for _, m := range named {
			if tests[m[1]] == nil {
				tests[m[1]] = testsIn(t, m[1])
			}
			assert.True(t, tests[m[1]][m[2]], "%s: there is no %s in %s", row[0], m[2], m[1])
		}
	}
}

// features returns the cells of the rows of the tables in the section about features.
func features(readme string) (rows [][]string) {
	_, section, _ := strings.Cut(readme, "\n## Features of spdk-csi\n")
	section, _, _ = strings.Cut(section, "\n## ")
	heading := false
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			heading = true
		case heading: // the first line of a table
			heading = false
		case !strings.HasPrefix(line, "|---"):
			var cells []string
			for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(cell))
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// testsIn returns the tests in a folder, whatever their build tags.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	all := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				all[fn.Name.Name] = true
			}
		}
	}
	return all
}

func TestFeaturesAreReadFromTheTables(t *testing.T) {
	const readme = "# P\n\n## Features of spdk-csi\nText.\n\n| Feature | State | Tests |\n|---|---|---|\n| A | yes | `a.TestA` |\n| B | no: | |\n\nMore:\n\n| Wish | State | Tests |\n|---|---|---|\n| C | yes | `c.TestC` |\n\n## Else\n| D | | |\n"
	assert.Equal(t, [][]string{{"A", "yes", "`a.TestA`"}, {"B", "no:", ""}, {"C", "yes", "`c.TestC`"}}, features(readme))
}
