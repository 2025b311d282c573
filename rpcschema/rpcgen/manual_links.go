package main

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// toHTML redirects the links between pages to the HTML files, and gives each method the anchor that
// the links use.
var toHTML = util.Prioritized(linkTransformer{}, 100)

type linkTransformer struct{}

func (linkTransformer) Transform(tree *ast.Document, reader text.Reader, _ parser.Context) {
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				file, anchor, _ := strings.Cut(string(n.Destination), "#")
				if anchor != "" {
					anchor = "#" + anchor
				}
				n.Destination = []byte(htmlName(file) + anchor)
			}
		case *ast.Heading:
			if entering && n.Level == 2 && n.Lines().Len() > 0 {
				line := n.Lines().At(0)
				n.SetAttributeString("id", []byte(strings.TrimSpace(string(line.Value(reader.Source())))))
			}
		}
		return ast.WalkContinue, nil
	})
}

// htmlName returns the name of a page's HTML file.
func htmlName(file string) string {
	switch name, is := strings.CutSuffix(file, ".md"); {
	case name == "README":
		return "index.html"
	case is:
		return name + ".html"
	}
	return file
}
