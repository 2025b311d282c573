package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// checkSpelling finds generated Go names that spell the same word in two ways. Either the capital
// letters differ (BdevNvmeHost and BdevNVMeAttach), or one name splits the word in two (Iostat and
// IOStat).
func checkSpelling(files map[string][]byte) error {
	names := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, files[file], parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			for _, id := range declared(n) {
				if id.IsExported() {
					names[id.Name] = true
				}
			}
			return true
		})
	}
	var found []error
	first := map[string]*spelling{} // keyed by the word in lower case
	meet := func(name, folded, word string) {
		if known, ok := first[folded]; !ok {
			first[folded] = &spelling{word: word, name: name}
		} else if known.word != word && !known.reported {
			known.reported = true
			found = append(found, fmt.Errorf("%s and %s spell a word in two ways, %s and %s: choose one in spellings", known.name, name, known.word, word))
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, name := range sorted {
		for _, word := range wordsOf(name) {
			meet(name, strings.ToLower(word), word)
		}
	}
	for _, name := range sorted {
		words := wordsOf(name)
		for i := 1; i < len(words); i++ {
			if two := words[i-1] + words[i]; first[strings.ToLower(two)] != nil {
				meet(name, strings.ToLower(two), two)
			}
		}
	}
	return errors.Join(found...)
}

// A spelling is a word in the spelling of a Go name.
type spelling struct {
	word, name string
	reported   bool // a second spelling has already been reported
}

// declared returns the names that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	}
	return nil
}
