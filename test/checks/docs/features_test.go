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

var (
	namedTest   = regexp.MustCompile("`([a-z][a-z0-9/-]*)\\.(Test[A-Za-z0-9]+)`")
	noneYet     = regexp.MustCompile(`^(no|planned, not available yet): `)
	withoutTest = regexp.MustCompile(`^(no|planned, not available yet): .{30}`)
)

// The evidence page has a row for each feature, in the same order, and each row names existing
// tests. For a feature without tests, the row states the reason.
func TestEachFeatureHasTests(t *testing.T) {
	features, evidence := table(t, "docs/features.md"), table(t, "docs/evidence.md")
	require.Greater(t, len(features), 80)
	var named []string
	for _, row := range features {
		if !noneYet.MatchString(row[1]) {
			named = append(named, row[0])
			continue
		}
		assert.Regexp(t, withoutTest, row[1], "%s: say why there is none", row[0])
	}
	tests := map[string]map[string]bool{}
	var shown []string
	for _, row := range evidence {
		shown = append(shown, row[0])
		found := namedTest.FindAllStringSubmatch(row[1], -1)
		assert.NotEmpty(t, found, "%s: name a test", row[0])
		assert.Equal(t, strings.Count(row[1], "`"), 2*len(found), "%s: name tests as `directory.TestSecretNameDependsOnTheKey`", row[0])
		for _, m := range found {
			if tests[m[1]] == nil {
				tests[m[1]] = testsIn(t, m[1])
			}
			assert.True(t, tests[m[1]][m[2]], "%s: there is no %s in %s", row[0], m[2], m[1])
		}
	}
	assert.Equal(t, named, shown, "docs/evidence.md has a row for each feature of docs/features.md that exists, in the same order")
}

func table(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	rows := rowsOf(string(text))
	for _, row := range rows {
		require.Len(t, row, 2, "%s: %v", page, row)
	}
	return rows
}

// rowsOf returns the cells in all table rows on a page, without the header rows.
func rowsOf(page string) (rows [][]string) {
	heading := false
	for line := range strings.Lines(page) {
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

// testsIn returns the tests in a directory, regardless of their build tags.
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

func TestTableRowsAreParsed(t *testing.T) {
	const page = "# P\nText.\n\n| Feature | State |\n|---|---|\n| A | yes |\n| B | no: |\n\n## More\n\n| Feature | State |\n|---|---|\n| C | yes |\n"
	assert.Equal(t, [][]string{{"A", "yes"}, {"B", "no:"}, {"C", "yes"}}, rowsOf(page))
}
