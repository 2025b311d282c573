package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

const root = "../../.."

// A document contains the parts of a Markdown file that are checked.
type document struct {
	path    string   // from the root of the repository
	links   []string // destinations of links and images, as written
	anchors []string // anchors of its headings, as GitHub generates them
	code    []string // inline code, and the lines of code blocks
	prose   string   // the rest of the text
}

var load = sync.OnceValues(func() (map[string]document, error) {
	docs := map[string]document{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		docs[name] = parse(name, source)
		return nil
	})
	return docs, err
})

// skipped reports whether a directory does not contain this repository's own Markdown files.
func skipped(name string) bool {
	return name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "..")
}

func documents(t *testing.T) map[string]document {
	t.Helper()
	docs, err := load()
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	return docs
}

func parse(path string, source []byte) document {
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	d := document{path: path, prose: prose(tree, source)}
	// Walk cannot fail, because the walker does not return errors.
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			d.links = append(d.links, string(n.Destination))
		case *ast.Image:
			d.links = append(d.links, string(n.Destination))
		case *ast.Heading:
			d.anchors = append(d.anchors, anchor(plain(n, source), d.anchors))
		case *ast.CodeSpan:
			d.code = append(d.code, plain(n, source))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				d.code = append(d.code, strings.TrimRight(string(line.Value(source)), "\n"))
			}
		}
		return ast.WalkContinue, nil
	})
	return d
}

// plain returns the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// prose returns a page's text without code and markup, each block on its own line.
func prose(page ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch t, isText := n.(*ast.Text); {
		case n.Kind() == ast.KindCodeSpan:
			return ast.WalkSkipChildren, nil
		case isText && entering:
			b.Write(t.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case n.Type() == ast.TypeBlock && !entering:
			b.WriteByte('\n')
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// anchor returns the anchor that GitHub gives to a heading: in lower case, with hyphens for spaces,
// without other punctuation, and with a number if the anchor is already in use.
func anchor(heading string, taken []string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	name := b.String()
	for i := 1; slices.Contains(taken, name); i++ {
		name = fmt.Sprintf("%s-%d", b.String(), i)
	}
	return name
}
