package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
)

// width is the length of a line.
const width = 100

// List writes a method a line, its name first.
func List(w io.Writer, methods []*rpcschema.Method) error {
	longest := 0
	for _, m := range methods {
		longest = max(longest, len(m.Name))
	}
	var b strings.Builder
	for _, m := range methods {
		fmt.Fprintf(&b, "%-*s  %s\n", longest, m.Name, m.Summary)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Show writes the page of one method as release r has it; the zero Release shows
// all that any release has, each with the releases that do.
func Show(w io.Writer, doc *rpcschema.Document, m *rpcschema.Method, r rpcschema.Release) error {
	p := &page{doc: doc, release: r}
	p.head(m)
	p.parameters(m)
	p.result(m)
	p.errors(m)
	if err := p.example(m); err != nil {
		return fmt.Errorf("example of %s: %w", m.Name, err)
	}
	_, err := w.Write(p.b.Bytes())
	return err
}

type page struct {
	doc     *rpcschema.Document
	release rpcschema.Release
	b       bytes.Buffer
}

func (p *page) head(m *rpcschema.Method) {
	p.wrap("", m.Name+": "+lowerFirst(m.Summary))
	if m.Description != "" {
		p.b.WriteByte('\n')
		p.wrap("", m.Description)
	}
	p.b.WriteByte('\n')
	does := "only reads"
	if m.Mutates {
		does = "changes the target"
		for _, name := range slices.Sorted(maps.Keys(m.ReadsIf)) {
			does += fmt.Sprintf("; only reads without %s, or where it is %s", name, strings.Trim(fmt.Sprint(m.ReadsIf[name]), "[]"))
		}
	}
	if m.Stalls {
		does += ", but may hold the target up or never end"
	}
	releases := m.Window.String()
	if releases == "" {
		releases = "every SPDK since " + rpcschema.Oldest.String()
	}
	if p.release.Known() {
		releases += "; shown as " + p.release.String() + " has it"
	}
	p.fact("Area", m.Area())
	p.fact("Effect", does)
	p.fact("State", strings.Join(m.State, ", "))
	p.fact("Releases", releases)
	p.fact("Instead", m.Instead)
	p.fact("Old names", strings.Join(m.Aliases, ", "))
}

func (p *page) fact(name, value string) {
	if value != "" {
		fmt.Fprintf(&p.b, "%-10s %s\n", name, value)
	}
}

func (p *page) title(text string) { fmt.Fprintf(&p.b, "\n%s\n", text) }

func (p *page) parameters(m *rpcschema.Method) {
	p.title("PARAMETERS")
	before := p.b.Len()
	for _, param := range m.Params {
		if !param.Schema.Has(p.release) {
			continue
		}
		required := param.Required
		if p.release.Known() {
			required = m.RequiredAt(param.Name, p.release)
		}
		p.entry(param.Name, need(required, param.Schema, "required", ""), param.Schema, param.Summary)
		p.inside(param.Name, param.Schema, words{"required", ""}, nil)
	}
	if p.b.Len() == before {
		p.b.WriteString("  none\n")
	}
	if m.ParamsForm == rpcschema.ParamsObject {
		p.wrap("  ", "Without any, give an empty object.")
	} else if m.ParamsForm == rpcschema.ParamsNone {
		p.wrap("  ", "Without any, leave params out: SPDK refuses an empty object.")
	}
	for _, group := range m.OneOf {
		p.wrap("  ", "Exactly one of "+strings.Join(group, ", ")+" must be given.")
	}
	for _, group := range m.AnyOf {
		p.wrap("  ", "At least one of "+strings.Join(group, ", ")+" must be given.")
	}
}

func (p *page) result(m *rpcschema.Method) {
	p.title("RESULT")
	p.entry("", "", m.Result.Schema, m.Result.Summary)
	p.inside("", m.Result.Schema, words{"", "optional"}, nil)
}

func (p *page) errors(m *rpcschema.Method) {
	if len(m.Errors) == 0 {
		return
	}
	p.title("ERRORS")
	for _, e := range m.Errors {
		fmt.Fprintf(&p.b, "  %6d  %s\n", e.Code, e.Message)
	}
}

// example writes a request with the least that the method takes, in the order of
// its parameters.
func (p *page) example(m *rpcschema.Method) error {
	p.title("EXAMPLE")
	values := sample.Maker{Document: p.doc, Release: p.release}.Params(m)
	var b strings.Builder
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":1,"method":%q`, m.Name)
	separator := `,"params":{`
	for _, param := range m.Params {
		value, given := values[param.Name]
		if !given {
			continue
		}
		text, err := jsonrpc.Marshal(value)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s%q:%s", separator, param.Name, text)
		separator = ","
	}
	switch {
	case len(values) > 0:
		b.WriteByte('}')
	case m.WithoutParams() == rpcschema.ParamsObject:
		b.WriteString(`,"params":{}`)
	}
	b.WriteByte('}')
	p.b.WriteString("  ")
	if err := json.Indent(&p.b, []byte(b.String()), "  ", "  "); err != nil {
		return err
	}
	p.b.WriteByte('\n')
	return nil
}

// wrap writes text in lines of the page's width.
func (p *page) wrap(indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > width {
			p.b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	if len(line) > len(indent) {
		p.b.WriteString(line + "\n")
	}
}

func lowerFirst(s string) string {
	if len(s) > 1 && (s[1] >= 'a' && s[1] <= 'z' || s[1] == ' ') {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}
