package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// words lists expressions that readers misunderstand, or that are spelled differently in this
// project, with their replacements.
var words = []struct {
	expression *regexp.Regexp
	instead    string
}{
	{regexp.MustCompile(`\b(may|can) not (know|depend)\b`), "must not know, or does not depend on: may not can mean that something is possible"},
	{regexp.MustCompile(`\bmay not (know|depend)\b`), "must not know, or does not depend on"},
	{regexp.MustCompile(`\b(tells|says|say) whether\b`), "reports whether"},
	{regexp.MustCompile(`(?i)\btime-outs?\b`), "timeout"},
	{regexp.MustCompile(`(?i)\bprocessor time\b`), "CPU time"},
	{regexp.MustCompile(`(?i)\bwhoever\b`), "the user, client or caller who"},
	{regexp.MustCompile(`(?i)\bsomebody\b`), "name the actor: another user, a client, an administrator"},
	{regexp.MustCompile(`\bfolders?\b`), "directory"},
	{regexp.MustCompile(`(?i)\b(mend|mends|mended|mending)\b`), "repair, or correct"},
	{regexp.MustCompile(`\banew\b`), "again"},
	{regexp.MustCompile(`\bfor ever\b`), "forever"},
	{regexp.MustCompile(`\bbe it\b`), "even, including, or if"},
	{regexp.MustCompile(`\b[Tt]he same holds\b`), "say what is true of the other object"},
	{regexp.MustCompile(`(?i)\bdoors?\b`), "endpoint"},
}

// TestForbiddenWordsAreNotUsed checks Markdown, comments, errors and test names.
func TestForbiddenWordsAreNotUsed(t *testing.T) {
	checked := 0
	check := func(where, text string) {
		checked++
		for _, w := range words {
			if found := w.expression.FindString(text); found != "" {
				t.Errorf("%s: %q: write: %s", where, found, w.instead)
			}
		}
	}
	for path, d := range documents(t) {
		if !strings.HasPrefix(path, "docs/methods/") { // generated from the schema
			check(path, d.prose)
		}
	}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_gen.go"):
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for at, text := range textsOf(file) {
			check(strings.TrimPrefix(set.Position(at).String(), root+"/"), text)
		}
		return nil
	}))
	assert.Greater(t, checked, 10_000)
}

// textsOf returns a file's comments and errors, and its test names split into words.
func textsOf(file *ast.File) map[token.Pos]string {
	texts := map[token.Pos]string{}
	for _, c := range file.Comments {
		texts[c.Pos()] = strings.ReplaceAll(c.Text(), "\n", " ")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if strings.HasPrefix(n.Name.Name, "Test") {
				texts[n.Name.Pos()] = strings.ToLower(upperCase.ReplaceAllString(n.Name.Name, " $0"))
			}
		case *ast.CallExpr:
			called, isMember := n.Fun.(*ast.SelectorExpr)
			if !isMember || called.Sel.Name != "Errorf" && called.Sel.Name != "New" || len(n.Args) == 0 {
				break
			}
			if text, isText := n.Args[0].(*ast.BasicLit); isText && text.Kind == token.STRING {
				texts[text.Pos()] = text.Value
			}
		}
		return true
	})
	return texts
}

var upperCase = regexp.MustCompile(`[A-Z]`)

func TestCheckedTextsAreExtracted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", `package x

// first
// comment
func TestExample(t *testing.T) { // second
	_ = fmt.Errorf("an error %d", 1)
}
`, parser.ParseComments)
	require.NoError(t, err)
	var texts []string
	for _, text := range textsOf(file) {
		texts = append(texts, strings.TrimSpace(text))
	}
	assert.ElementsMatch(t, []string{"first comment", "second", "test example", `"an error %d"`}, texts)
}
