package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/page"
)

// manual renders the pages of all methods in Markdown.
func manual(doc *rpcschema.Document) (map[string][]byte, error) {
	methods := map[string][]*rpcschema.Method{}
	for _, m := range doc.Methods() {
		methods[m.Area()] = append(methods[m.Area()], m)
	}
	areas := slices.Sorted(maps.Keys(methods))
	pages := map[string][]byte{}
	for _, area := range areas {
		var b bytes.Buffer
		if err := page.Markdown(&b, doc, area, methods[area], rpcschema.Release{}); err != nil {
			return nil, err
		}
		pages[area+".md"] = b.Bytes()
	}
	var b bytes.Buffer
	if err := page.Index(&b, areas, methods); err != nil {
		return nil, err
	}
	pages["README.md"] = b.Bytes()
	return pages, nil
}

// writeManual replaces the pages in a directory.
func writeManual(dir string, pages map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, path := range stale {
		if _, kept := pages[filepath.Base(path)]; !kept {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const htmlHead = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s - SPDK JSON-RPC</title>
<style>
:root{color-scheme:light dark} body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:1rem}
table{border-collapse:collapse;display:block;overflow-x:auto} td,th{border:1px solid #8888;padding:.25rem .5rem;text-align:left;vertical-align:top}
pre{overflow-x:auto;border:1px solid #8888;padding:.5rem} code{font-size:.9em} h2{border-top:1px solid #8888;padding-top:1rem;overflow-wrap:anywhere}
</style></head><body>
<p><a href="index.html">All methods</a></p>
`

// writeHTML writes the same pages as HTML.
func writeHTML(dir string, pages map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(toHTML)))
	for name, text := range pages {
		var b bytes.Buffer
		title := name[:len(name)-len(".md")]
		fmt.Fprintf(&b, htmlHead, title)
		if err := md.Convert(text, &b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.WriteString("</body></html>\n")
		if err := os.WriteFile(filepath.Join(dir, htmlName(name)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
