package structure

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// emptyNames lists names that do not describe the contents of a package. Unrelated code would
// accumulate in such packages.
var emptyNames = []string{"base", "common", "commons", "helper", "helpers", "lib", "misc", "shared", "types", "util", "utils"}

func TestPackageNamesDescribeTheirContents(t *testing.T) {
	for _, p := range packages(t) {
		for _, e := range elements(p.path()) {
			assert.NotContains(t, emptyNames, e, "%s: name it for what it provides", p.path())
		}
	}
}

// Every package must have a package comment, even if it contains only tests.
func TestPackagesAreDocumented(t *testing.T) {
	for _, p := range packages(t) {
		t.Run(p.path(), func(t *testing.T) {
			begin := "Package " + p.Name + " "
			if p.Name == "main" {
				begin = "Command " + filepath.Base(p.path()) + " "
			}
			doc := documentation(t, p)
			require.NotEmpty(t, doc, "no package comment: write one in doc.go, beginning with %q", begin)
			assert.True(t, strings.HasPrefix(doc, begin), "the package comment must begin with %q, not %q", begin, firstLine(doc))
		})
	}
}

// documentation returns the package comment. If a package contains only tests, the comment is in a
// test file.
func documentation(t *testing.T, p pkg) string {
	files := p.GoFiles
	if len(files) == 0 {
		files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
	}
	var docs []string
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if parsed.Doc != nil && strings.TrimSpace(parsed.Doc.Text()) != "" {
			docs = append(docs, parsed.Doc.Text())
		}
	}
	assert.LessOrEqual(t, len(docs), 1, "more than one file has a package comment: keep one")
	return strings.Join(docs, "\n")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// Each file should have only one topic, so its length is limited. Generated files may have any
// length.
func TestFilesAreNotTooLong(t *testing.T) {
	const most = 400
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			source, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if generated(t, source) {
				continue
			}
			lines := bytes.Count(source, []byte("\n"))
			assert.LessOrEqual(t, lines, most, "%s/%s has %d lines: divide it by what its parts are about", p.path(), f, lines)
		}
	}
}

func generated(t *testing.T, source []byte) bool {
	parsed, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly|parser.ParseComments)
	require.NoError(t, err)
	return ast.IsGenerated(parsed)
}
