package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// eachItem is what a pointer says for every item of a list. An index would be
// about one of them, and let the others pass.
const eachItem = "*"

// A place is where a pointer leads to in the parameters of a method.
type place struct {
	tokens []string
	forms  []*rpcschema.Schema // of the value there; none: anything
	kinds  []string            // x-spdk-resource, here and on the way
}

// find follows a JSON pointer through the schema.
func find(pointer string, m *rpcschema.Method, schema *rpcschema.Document) (*place, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("a JSON pointer begins with a slash: did you mean /%s?", pointer)
	}
	p := &place{tokens: strings.Split(pointer[1:], "/")}
	for i, token := range p.tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, errors.New("in a JSON pointer ~ is written ~0, and / in a name ~1")
		}
		p.tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	params := rpcschema.Properties{}
	for _, param := range m.Params {
		params = append(params, rpcschema.Property{Name: param.Name, Schema: param.Schema})
	}
	forms := []*rpcschema.Schema{{Type: rpcschema.TypeSet{"object"}, Properties: params}}
	for i, token := range p.tokens {
		if successor := successorOf(forms, token); successor != "" {
			return nil, fmt.Errorf("%s took over from it: write that, and it holds for %s, too", successor, token)
		}
		next, open := step(forms, token)
		if len(next) == 0 && !open {
			return nil, lost(forms, token, strings.Join(p.tokens[:i], "/"), m)
		}
		forms = p.resolve(next, schema, 0)
		if open {
			forms = nil
			break
		}
	}
	p.forms = forms
	return p, nil
}

// successorOf is the member that took over from another.
func successorOf(forms []*rpcschema.Schema, token string) string {
	for _, s := range forms {
		for _, p := range s.Properties {
			if p.Schema != nil && p.Replaces != nil && p.Replaces.Name == token {
				return p.Name
			}
		}
	}
	return ""
}

// step is one step down, and whether it leads to what the schema leaves open.
func step(forms []*rpcschema.Schema, token string) (next []*rpcschema.Schema, open bool) {
	for _, s := range forms {
		switch {
		case token == eachItem:
			if s.Items != nil {
				next = append(next, s.Items)
			}
		case s.Properties.Get(token) != nil:
			next = append(next, s.Properties.Get(token))
		case s.Additional.Schema != nil:
			next = append(next, s.Additional.Schema)
		case s.Additional.Allowed:
			open = true
		}
	}
	return next, open
}

// resolve lists the forms of schemas, without references and unions, and notes
// what they name.
func (p *place) resolve(schemas []*rpcschema.Schema, doc *rpcschema.Document, depth int) (forms []*rpcschema.Schema) {
	for _, s := range schemas {
		if s == nil || depth > 32 {
			continue
		}
		if s.Resource != "" {
			p.kinds = append(p.kinds, s.Resource)
		}
		inner := slices.Concat(s.OneOf, s.AnyOf)
		if s.Ref != "" {
			inner = append(inner, doc.Schemas()[s.RefName()])
		} else if len(s.Type) > 0 || len(inner) == 0 {
			forms = append(forms, s)
		}
		forms = append(forms, p.resolve(inner, doc, depth+1)...)
	}
	return forms
}

// lost says why there is no step with a name.
func lost(forms []*rpcschema.Schema, token, within string, m *rpcschema.Method) error {
	of := m.Name
	if within != "" {
		of = "/" + within
	}
	var names []string
	for _, s := range forms {
		if s.Items != nil {
			return fmt.Errorf("%s is a list: write %s/%s for each of its items", of, of, eachItem)
		}
		for _, p := range s.Properties {
			names = append(names, p.Name)
		}
	}
	near := rpcschema.Nearest(token, names)
	switch {
	case near != "":
		return fmt.Errorf("%s has no %q: did you mean %s?", of, token, near)
	case len(names) == 0 && within == "":
		return fmt.Errorf("%s takes no parameters", of)
	case len(names) == 0:
		return fmt.Errorf("%s has no members", of)
	}
	return fmt.Errorf("%s has no %q: there are %s", of, token, strings.Join(names, ", "))
}

// oneSpelling are the kinds of resource that SPDK knows by one name only, but for
// its case. A bdev also has an alias and a UUID, an address leading zeros, a file
// other paths.
var oneSpelling = []string{"lvstore", "lvstore-uuid", "lvol-name", "nqn", "host-nqn", "iqn", "key", "crypto-key", "new-bdev", "new-lvstore", "new-nqn", "new-iqn", "new-key"}

// takes checks that a test can be held against what stands at the place.
func (p *place) takes(t Test, deny bool) error {
	if t.Glob == "" && len(t.Enum) == 0 && t.Minimum == nil && t.Maximum == nil {
		if t.Absent == nil {
			return errors.New("there is nothing to test: give glob, enum, minimum, maximum or absent")
		}
		return nil
	}
	if _, err := path.Match(t.Glob, ""); err != nil {
		return errors.New("globs know * ? and [a-z], and \\ before one that is meant literally")
	}
	if t.Minimum != nil && t.Maximum != nil && t.Minimum.n.Cmp(t.Maximum.n) > 0 {
		return fmt.Errorf("nothing is at least %s and at most %s", t.Minimum, t.Maximum)
	}
	if len(p.forms) == 0 {
		if deny {
			return errors.New("the schema does not say what stands there, so that this deny could be got around: allow instead what may be")
		}
		return nil
	}
	kinds := p.types()
	if kinds["array"] && !kinds["string"] && !kinds["integer"] && !kinds["boolean"] {
		return fmt.Errorf("it is a list: write /%s/%s for each of its items", strings.Join(p.tokens, "/"), eachItem)
	}
	if t.Glob != "" && !kinds["string"] {
		return errors.New("glob is for texts, and this is none")
	}
	if (t.Minimum != nil || t.Maximum != nil) && !kinds["integer"] && !kinds["number"] {
		return errors.New("minimum and maximum are for numbers, and this is none")
	}
	for _, v := range t.Enum {
		if err := p.takesValue(v, kinds); err != nil {
			return err
		}
	}
	return p.takesText(t, deny, kinds)
}

// types are the JSON types of the forms.
func (p *place) types() map[string]bool {
	found := map[string]bool{}
	for _, s := range p.forms {
		for _, name := range s.Type {
			found[name] = true
		}
		if len(s.Type) == 0 {
			for _, name := range []string{"string", "integer", "number", "boolean"} {
				found[name] = true
			}
		}
	}
	return found
}

func (p *place) takesValue(v Value, types map[string]bool) error {
	if v.v == nil {
		return errors.New("a value of enum is empty: fill it in, or take it out")
	}
	want := "boolean"
	if _, ok := v.text(); ok {
		want = "string"
	}
	if _, ok := v.number(); ok {
		want = "integer"
	}
	switch {
	case types[want], want == "integer" && types["number"]:
		return nil
	case types["string"]:
		return fmt.Errorf("%s is no text: write %q", v, v.String())
	}
	return fmt.Errorf("%s can never be there: its type is %s", v, strings.Join(p.typeNames(), " or "))
}

func (p *place) typeNames() (names []string) {
	for _, s := range p.forms {
		names = append(names, s.Type...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// takesText checks what is said of texts: that it can hold at all, and that a
// deny cannot be got around by another spelling.
func (p *place) takesText(t Test, deny bool, types map[string]bool) error {
	asksText := t.Glob != "" || slices.ContainsFunc(t.Enum, func(v Value) bool { _, ok := v.text(); return ok })
	if !asksText {
		return nil
	}
	var closed []string
	isClosed := true
	for _, s := range p.forms {
		if len(s.Type) > 0 && !slices.Contains(s.Type, "string") {
			continue
		}
		isClosed = isClosed && len(s.Enum) > 0
		for _, v := range s.Enum {
			closed = append(closed, fmt.Sprint(v))
		}
	}
	if isClosed {
		return fitsClosed(t, closed)
	}
	known := len(p.kinds) > 0 && !slices.ContainsFunc(p.kinds, func(kind string) bool { return !slices.Contains(oneSpelling, kind) })
	if deny && !known {
		return errors.New("SPDK may take other spellings for the same (names, aliases and UUIDs, cases, paths), so that this deny could be got around: " +
			"allow instead what may be, or make the user a tenant's")
	}
	return nil
}

// fitsClosed checks what is said of a text that has a fixed set of values.
func fitsClosed(t Test, values []string) error {
	for _, v := range t.Enum {
		if text, ok := v.text(); ok && !slices.Contains(values, text) {
			return fmt.Errorf("%q can never be there: it is one of %s", text, strings.Join(values, ", "))
		}
	}
	if t.Glob != "" && !slices.ContainsFunc(values, func(s string) bool { ok, _ := path.Match(t.Glob, s); return ok }) {
		return fmt.Errorf("%s matches none of %s", t.Glob, strings.Join(values, ", "))
	}
	return nil
}
