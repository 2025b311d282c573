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

// width is the maximum length of a line.
const width = 100

// List writes one line for each method, beginning with its name.
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

// Show writes one method's page for release r. For the zero Release, it shows the members of all
// releases, each with the releases that support it.
func Show(w io.Writer, doc *rpcschema.Document, m *rpcschema.Method, r rpcschema.Release) error {
	p := &page{doc: doc, release: r}
	p.write = p.terminal
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
	write   func(entry) // writes one entry
}

func (p *page) head(m *rpcschema.Method) {
	p.wrap("", m.Name+": "+lowerFirst(m.Summary))
	if m.Description != "" {
		p.b.WriteByte('\n')
		p.wrap("", m.Description)
	}
	p.b.WriteByte('\n')
	for _, f := range p.about(m) {
		fmt.Fprintf(&p.b, "%-10s %s\n", f.name, f.value)
	}
}

type fact struct{ name, value string }

// about returns the facts about a method as a whole.
func (p *page) about(m *rpcschema.Method) (facts []fact) {
	does := "only reads"
	if m.Mutates {
		does = "changes the target"
		for _, name := range slices.Sorted(maps.Keys(m.ReadsIf)) {
			does += fmt.Sprintf("; only reads without %s, or where it is %s", name, strings.Trim(fmt.Sprint(m.ReadsIf[name]), "[]"))
		}
	}
	if m.Saved == rpcschema.SavedFirst {
		does += "; spdk-proxy saves the change before it responds"
	}
	if m.Stalls {
		does += ", but may block the target or never return"
	}
	releases := m.Window.String()
	if releases == "" {
		releases = "every SPDK since " + rpcschema.Oldest.String()
	}
	if p.release.Known() {
		releases += "; shown as " + p.release.String() + " has it"
	}
	for _, f := range []fact{
		{"Area", m.Area()}, {"Effect", does}, {"State", strings.Join(m.State, ", ")}, {"Releases", releases},
		{"Instead", m.Instead}, {"Old names", strings.Join(m.Aliases, ", ")},
	} {
		if f.value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

func (p *page) title(text string) { fmt.Fprintf(&p.b, "\n%s\n", text) }

func (p *page) parameters(m *rpcschema.Method) {
	p.title("PARAMETERS")
	if !p.parameterEntries(m) {
		p.b.WriteString("  none\n")
	}
	for _, note := range parameterNotes(m) {
		p.wrap("  ", note)
	}
}

// parameterEntries writes the parameters with their members, and reports whether it wrote any.
func (p *page) parameterEntries(m *rpcschema.Method) (written bool) {
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
		written = true
	}
	return written
}

// parameterNotes returns the rules on combinations of parameters, and on calls without parameters.
func parameterNotes(m *rpcschema.Method) (notes []string) {
	switch m.ParamsForm {
	case rpcschema.ParamsObject:
		notes = append(notes, "If there are no parameters, give an empty object.")
	case rpcschema.ParamsNone:
		notes = append(notes, "If there are no parameters, leave params out: SPDK refuses an empty object.")
	}
	for _, group := range m.OneOf {
		notes = append(notes, "Exactly one of "+strings.Join(group, ", ")+" must be given.")
	}
	for _, group := range m.AnyOf {
		notes = append(notes, "At least one of "+strings.Join(group, ", ")+" must be given.")
	}
	return notes
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

// example writes a request that contains only the required parameters, in the method's order.
func (p *page) example(m *rpcschema.Method) error {
	p.title("EXAMPLE")
	request, err := p.request(m)
	if err != nil {
		return err
	}
	p.b.WriteString("  ")
	if err := json.Indent(&p.b, request, "  ", "  "); err != nil {
		return err
	}
	p.b.WriteByte('\n')
	return nil
}

// request returns a call that contains only the required parameters.
func (p *page) request(m *rpcschema.Method) ([]byte, error) {
	values := sample.Maker{Document: p.doc, Release: p.release}.Params(m)
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":1,"method":%q`, m.Name)
	separator := `,"params":{`
	for _, param := range m.Params {
		value, given := values[param.Name]
		if !given {
			continue
		}
		text, err := jsonrpc.Marshal(value)
		if err != nil {
			return nil, err
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
	return b.Bytes(), nil
}

// wrap writes text in lines no longer than width.
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
