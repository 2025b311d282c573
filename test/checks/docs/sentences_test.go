package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// mostWords is the maximum length of a sentence in the manual. Inline code counts as one word.
const mostWords = 30

// TestSentencesAreShort checks the pages for users, but not those for developers or generated
// pages.
func TestSentencesAreShort(t *testing.T) {
	checked := 0
	for path := range documents(t) {
		folder := filepath.Dir(path)
		switch {
		case folder == "docs" && path != "docs/csi-reference.md" && path != "docs/evidence.md": // written by hand
		case strings.HasPrefix(path, "deploy/"), folder == "docs/upstream":
		case path == "README.md", path == "CONTRIBUTING.md", path == "SECURITY.md":
		default:
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		for _, sentence := range sentences(source) {
			checked++
			words := len(strings.Fields(sentence))
			assert.LessOrEqual(t, words, mostWords, "%s: split this sentence of %d words: %s", path, words, sentence)
		}
	}
	assert.Greater(t, checked, 4000)
}

// sentenceEnd matches the end of a sentence, or of an item in a list within a sentence.
var sentenceEnd = regexp.MustCompile(`[.!?;][")]*\s+|[.!?][")]*$`)

// sentences returns the sentences in a page's paragraphs and table cells. Each item of a list and
// each clause before a semicolon counts as a sentence.
func sentences(source []byte) (found []string) {
	page := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	var block strings.Builder
	_ = ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch t, isText := n.(*ast.Text); {
		case n.Kind() == ast.KindCodeSpan:
			if entering {
				block.WriteString("CODE")
			}
			return ast.WalkSkipChildren, nil
		case isText && entering:
			block.Write(t.Value(source))
			if t.SoftLineBreak() {
				block.WriteByte(' ')
			}
		case n.Type() == ast.TypeBlock && !entering:
			for _, sentence := range sentenceEnd.Split(block.String(), -1) {
				if sentence != "" {
					found = append(found, sentence)
				}
			}
			block.Reset()
		}
		return ast.WalkContinue, nil
	})
	return found
}

func TestSentencesAreExtracted(t *testing.T) {
	const page = "# A title\n\nIt runs `a b. c` from v24.05 on. Then\nit ends: [see](x.md).\n\n- one (two.)\n- three; four\n\n| A | B |\n|---|---|\n| c d | e. |\n"
	assert.Equal(t, []string{"A title", "It runs CODE from v24.05 on", "Then it ends: see", "one (two", "three", "four", "A", "B", "c d", "e"}, sentences([]byte(page)))
}
