package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// errorKey is the log key for errors.
const errorKey = "error"

// logMethods lists the methods and functions of log/slog that take keys and values.
var logMethods = []string{"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext", "Log", "With", "Any", "String"}

// Users must be able to find all errors in the log by searching for only one key.
func TestErrorsHaveOneKeyInLogs(t *testing.T) {
	keys := 0
	sources(t, func(file string, set *token.FileSet, parsed *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		found, problems := errorKeys(set, parsed)
		keys += found
		for _, p := range problems {
			t.Error(p)
		}
	})
	assert.Greater(t, keys, 30)
}

// errorKeys returns the number of errors that a file logs, and the errors that it logs under
// another key. It recognizes errors by syntax: names that end in err, calls to Error, and errors
// created in place.
func errorKeys(set *token.FileSet, file *ast.File) (found int, problems []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(logMethods, method.Sel.Name) {
			return true
		}
		for i := range len(call.Args) - 1 {
			literal, ok := call.Args[i].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			key, _ := strconv.Unquote(literal.Value)
			message := i == 0 && len(call.Args) > 2 // the value that follows it is a key
			switch {
			case message || strings.Contains(key, " "):
			case key == errorKey:
				found++
			case key == "err" || isError(call.Args[i+1]):
				problems = append(problems, fmt.Sprintf("%s: the key of an error is %q: name it %q", set.Position(literal.Pos()), key, errorKey))
			}
		}
		return true
	})
	return found, problems
}

func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(e.Name), "err")
	case *ast.SelectorExpr:
		return isError(e.Sel)
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		from, _ := f.X.(*ast.Ident)
		return f.Sel.Name == "Error" || f.Sel.Name == "Errorf" || from != nil && from.Name == "errors"
	}
	return false
}

func TestWrongErrorKeysAreFound(t *testing.T) {
	const source = `package p

func f() {
	log.Warn("message", "volume", v, "error", err)
	log.Info("message", "err", v)
	log.WarnContext(ctx, "a message", "volume", v, "why", readErr)
	slog.Any("cause", state.Err)
	log.With("reason", errors.Join(a, b))
	log.Log(ctx, level, "message", "text", err.Error())
	http.Error(w, "not there", err)
	log.Error("failed", "volume", v)
}
`
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "f.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	found, problems := errorKeys(set, parsed)
	assert.Equal(t, 1, found)
	require.Len(t, problems, 5)
	for i, position := range []string{"f.go:5:", "f.go:6:", "f.go:7:", "f.go:8:", "f.go:9:"} {
		assert.Contains(t, problems[i], position)
	}
}
