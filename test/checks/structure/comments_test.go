package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// commentWidth is the column at which comments are wrapped.
	commentWidth = 100
	// A line counts as too short if the next word would end within shortWidth. shortWidth is less
	// than commentWidth, so that replacing a word does not require rewrapping the paragraph.
	shortWidth = 80
	// tabWidth is the number of columns that a tab occupies.
	tabWidth = 4
)

// All comments must be wrapped at the same width, so that an edit changes only a few of a comment's
// lines. The check ignores comments after code on the same line, directives, code, and tables.
func TestCommentsWrapAtOneWidth(t *testing.T) {
	checked := 0
	sources(t, func(_ string, set *token.FileSet, parsed *ast.File) {
		lines, problems := wrapping(set, parsed)
		checked += lines
		for _, p := range problems {
			t.Error(p)
		}
	})
	assert.Greater(t, checked, 10000)
}

// wrapping counts a file's comment lines, and returns those that are too long or too short.
func wrapping(set *token.FileSet, file *ast.File) (lines int, problems []string) {
	code := linesOfCode(set, file)
	for _, group := range file.Comments {
		before := "" // the previous line if it is prose
		for _, c := range group.List {
			at := set.Position(c.Pos())
			if code[at.Line] || !strings.HasPrefix(c.Text, "//") {
				continue
			}
			lines++
			line := strings.Repeat(" ", tabWidth*(at.Column-1)) + c.Text // gofmt indents by tabs
			switch {
			case columns(line) > commentWidth && (isProse(c.Text) || listItem.MatchString(c.Text)):
				problems = append(problems, fmt.Sprintf("%s: the comment has %d columns: wrap it at %d", at, columns(line), commentWidth))
			case before != "" && isProse(c.Text) && columns(before)+1+columns(strings.Fields(c.Text)[1]) <= shortWidth:
				problems = append(problems, fmt.Sprintf("%s: the line before is short: wrap the paragraph at %d columns", at, commentWidth))
			}
			if before = ""; isProse(c.Text) && !strings.HasSuffix(c.Text, ":") {
				before = line
			}
		}
	}
	return lines, problems
}

// linesOfCode returns the lines where a token begins or ends.
func linesOfCode(set *token.FileSet, file *ast.File) map[int]bool {
	code := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
			return false
		}
		code[set.Position(n.Pos()).Line] = true
		code[set.Position(n.End()).Line] = true
		return true
	})
	return code
}

var (
	listItem    = regexp.MustCompile(`^// *([-*•]|\d+[.)]) `)
	noSentence  = regexp.MustCompile(`^// (#|\||nolint|lint:|Output:|Unordered output:)`)
	twoSpacesIn = regexp.MustCompile(`^//.*\S(  |\t)`)
)

// isProse reports whether a comment line may be wrapped. Code lines are indented. Table columns are
// separated by more than one space.
func isProse(line string) bool {
	text, spaced := strings.CutPrefix(line, "// ")
	return spaced && text != "" && text[0] != ' ' && text[0] != '\t' && strings.Contains(text, " ") &&
		!listItem.MatchString(line) && !noSentence.MatchString(line) && !twoSpacesIn.MatchString(line)
}

func columns(line string) int { return utf8.RuneCountInString(line) }

func TestBadlyWrappedCommentsAreFound(t *testing.T) {
	long := strings.Repeat("word ", 19) + "and"
	source := "// Package p has the right width.\npackage p\n\n" +
		"//go:generate " + long + long + "\n\n" +
		"// f is documented by a line of one hundred columns, which is as many as a line of a comment may be.\n" +
		"// g begins at once.\n//\n//\t" + long + long + "\n//   - " + long + " more\n" +
		"func f() {\n" +
		"\t// " + long + "\n" +
		"\tg() // " + long + " " + long + "\n" +
		"\t// This line is wrapped although\n\t// the next word fits.\n\n" +
		"\t// A list:\n\t// - one\n\t// - two\n\t//\n\t// name  value\n\t// one   1\n" +
		"}\n"
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "p.go", source, parser.SkipObjectResolution|parser.ParseComments)
	require.NoError(t, err)
	_, problems := wrapping(set, parsed)
	require.Len(t, problems, 3, "%q", problems)
	for i, position := range []string{"p.go:10:", "p.go:12:", "p.go:15:"} {
		assert.Contains(t, problems[i], position)
	}
}
