package page

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
)

// Markdown writes an area's page, which consists of a table of its methods, followed by the
// description of each method at release r.
func Markdown(w io.Writer, doc *rpcschema.Document, area string, methods []*rpcschema.Method, r rpcschema.Release) error {
	p := &page{doc: doc, release: r}
	p.write = p.tableRow
	fmt.Fprintf(&p.b, "# %s\n\n%s\n\n", area, generated)
	p.tableHead("Method", "Effect", "What it does")
	for _, m := range methods {
		effect := "reads"
		if m.Mutates {
			effect = "changes"
		}
		fmt.Fprintf(&p.b, "| [%s](#%s) | %s | %s |\n", m.Name, m.Name, effect, cell(m.Summary))
	}
	for _, m := range methods {
		if err := p.method(m); err != nil {
			return fmt.Errorf("page of %s: %w", m.Name, err)
		}
	}
	_, err := w.Write(p.b.Bytes())
	return err
}

const generated = "<!-- Generated from rpcschema/areas by `make generate`. Do not edit. -->"

// Index writes the page with links to the areas' pages.
func Index(w io.Writer, areas []string, methods map[string][]*rpcschema.Method) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# SPDK's JSON-RPC methods

%s

Every method of SPDK from %s on, by area: parameters, results, errors, the releases that know each, and an example. The
same pages for the terminal: `+"`spdk-schema show METHOD`, or `spdk-proxy schema show METHOD`"+`.

`, generated, rpcschema.Oldest)
	for _, area := range areas {
		fmt.Fprintf(&b, "## [%s](%s.md)\n", area, area)
		for _, m := range methods[area] {
			fmt.Fprintf(&b, "- [%s](%s.md#%s): %s\n", m.Name, area, m.Name, lowerFirst(m.Summary))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

func (p *page) method(m *rpcschema.Method) error {
	fmt.Fprintf(&p.b, "\n## %s\n%s\n", m.Name, escape(m.Summary))
	if m.Description != "" {
		fmt.Fprintf(&p.b, "\n%s\n", escape(strings.Join(strings.Fields(m.Description), " ")))
	}
	p.b.WriteByte('\n')
	for _, f := range p.about(m) {
		if f.name != "Area" {
			fmt.Fprintf(&p.b, "- %s: %s\n", f.name, escape(f.value))
		}
	}
	p.b.WriteString("\n### Parameters\n")
	before := p.b.Len()
	p.tableHead("Name", "Type", "", "Meaning")
	if !p.parameterEntries(m) {
		p.b.Truncate(before)
		p.b.WriteString("None.\n")
	}
	for _, note := range parameterNotes(m) {
		fmt.Fprintf(&p.b, "\n%s\n", escape(note))
	}
	p.b.WriteString("\n### Result\n")
	p.tableHead("Name", "Type", "", "Meaning")
	p.entry("", "", m.Result.Schema, m.Result.Summary)
	p.inside("", m.Result.Schema, words{"", "optional"}, nil)
	if len(m.Errors) > 0 {
		p.b.WriteString("\n### Errors\n")
		p.tableHead("Code", "Meaning")
		for _, e := range m.Errors {
			fmt.Fprintf(&p.b, "| %d | %s |\n", e.Code, cell(e.Message))
		}
	}
	return p.examples(m)
}

// examples writes a call and a possible response.
func (p *page) examples(m *rpcschema.Method) error {
	p.b.WriteString("\n### Example\n")
	request, err := p.request(m)
	if err != nil {
		return err
	}
	result, err := jsonrpc.Marshal(sample.Maker{Document: p.doc, Release: p.release}.Result(m))
	if err != nil {
		return err
	}
	for _, text := range [][]byte{request, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":%s}`, result)} {
		p.b.WriteString("```json\n")
		if err := json.Indent(&p.b, text, "", "  "); err != nil {
			return err
		}
		p.b.WriteString("\n```\n")
	}
	return nil
}

func (p *page) tableHead(columns ...string) {
	fmt.Fprintf(&p.b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

func (p *page) tableRow(e entry) {
	name := ""
	if e.name != "" {
		name = "`" + e.name + "`"
	}
	fmt.Fprintf(&p.b, "| %s | %s | %s | %s |\n", name, cell(e.typ), cell(e.need), cell(e.text))
}

// cell formats text for a table cell.
func cell(text string) string {
	return strings.ReplaceAll(escape(strings.Join(strings.Fields(text), " ")), "|", `\|`)
}

// escape escapes Markdown in a string, except in code spans.
func escape(text string) string {
	var b strings.Builder
	code := false
	for _, r := range text {
		switch {
		case r == '`':
			code = !code
		case !code && strings.ContainsRune(`*_<>[]\`, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
