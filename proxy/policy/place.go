package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// In a pointer, eachItem stands for every item of a list. Indexes are rejected, because a rule with
// an index would test one item and ignore the others.
const eachItem = "*"

// A place is the part of a method's parameters to which a pointer refers.
type place struct {
	tokens []string
	forms  []*rpcschema.Schema // schemas of the value; empty if the value may be anything
	kinds  []string            // x-spdk-resource of the value and of its containers
}

// find follows a JSON pointer through the schema.
func find(pointer string, m *rpcschema.Method, schema *rpcschema.Document) (*place, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("a JSON pointer begins with a slash: did you mean /%s?", pointer)
	}
	p := &place{tokens: strings.Split(pointer[1:], "/")}
	for i, token := range p.tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, errors.New("in a JSON pointer, write ~0 for ~, and ~1 for a / in a name")
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
			return nil, fmt.Errorf("%s replaces it: write %s, which also applies to %s", successor, successor, token)
		}
		next, open := step(forms, token)
		if len(next) == 0 && !open {
			return nil, notFound(forms, token, strings.Join(p.tokens[:i], "/"), m)
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

// successorOf returns the member that replaces the named member, or "" if there is none.
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

// step follows one token of a pointer. open means that the schema does not describe the value
// there.
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

// resolve lists the forms of schemas, with references and unions resolved. It adds the kinds of
// objects that the schemas name to p.kinds.
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

// notFound returns the error for a token that the schema does not contain.
func notFound(forms []*rpcschema.Schema, token, within string, m *rpcschema.Method) error {
	owner := m.Name
	if within != "" {
		owner = "/" + within
	}
	var names []string
	for _, s := range forms {
		if s.Items != nil {
			return fmt.Errorf("%s is a list: write %s/%s for each of its items", owner, owner, eachItem)
		}
		for _, p := range s.Properties {
			names = append(names, p.Name)
		}
	}
	near := rpcschema.Nearest(token, names)
	switch {
	case near != "":
		return fmt.Errorf("%s has no %q: did you mean %s?", owner, token, near)
	case len(names) == 0 && within == "":
		return fmt.Errorf("%s has no parameters", owner)
	case len(names) == 0:
		return fmt.Errorf("%s has no members", owner)
	}
	return fmt.Errorf("%s has no %q; it has %s", owner, token, strings.Join(names, ", "))
}

// oneSpelling lists the kinds of objects that have only one name in SPDK, apart from letter case.
// Objects of other kinds can have several names: a bdev has aliases and a UUID, an address can have
// leading zeros, and a file can have several paths.
var oneSpelling = []string{"lvstore", "lvstore-uuid", "lvol-name", "nqn", "host-nqn", "iqn", "key", "crypto-key", "new-bdev", "new-lvstore", "new-nqn", "new-iqn", "new-key"}

// checkTest checks that values at this place can be tested. For a deny, it also checks that no
// other spelling of a value would bypass the test.
func (p *place) checkTest(t Test, deny bool) error {
	if t.Glob == "" && len(t.Enum) == 0 && t.Minimum == nil && t.Maximum == nil {
		if t.Absent == nil {
			return errors.New("the test is empty: set glob, enum, minimum, maximum or absent")
		}
		return nil
	}
	if _, err := path.Match(t.Glob, ""); err != nil {
		return errors.New("globs support * ? [a-z], and \\ before a literal character")
	}
	if t.Minimum != nil && t.Maximum != nil && t.Minimum.n.Cmp(t.Maximum.n) > 0 {
		return fmt.Errorf("no number is at least %s and at most %s", t.Minimum, t.Maximum)
	}
	if len(p.forms) == 0 {
		if deny {
			return errors.New("the schema does not describe this value, so this deny could be bypassed: allow the permitted values instead")
		}
		return nil
	}
	kinds := p.types()
	if kinds["array"] && !kinds["string"] && !kinds["integer"] && !kinds["boolean"] {
		return fmt.Errorf("it is a list: write /%s/%s for each of its items", strings.Join(p.tokens, "/"), eachItem)
	}
	if t.Glob != "" && !kinds["string"] {
		return errors.New("glob is for strings, but this value is not a string")
	}
	if (t.Minimum != nil || t.Maximum != nil) && !kinds["integer"] && !kinds["number"] {
		return errors.New("minimum and maximum are for numbers, but this value is not a number")
	}
	for _, v := range t.Enum {
		if err := p.checkValue(v, kinds); err != nil {
			return err
		}
	}
	return p.checkText(t, deny)
}

// types returns the JSON types of the forms.
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

// checkValue checks that a value of enum can occur at this place.
func (p *place) checkValue(v Value, types map[string]bool) error {
	if v.v == nil {
		return errors.New("enum has an empty entry: give it a value or remove it")
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
		return fmt.Errorf("%s is not a string: write %q", v, v.String())
	}
	return fmt.Errorf("%s is impossible here: the type is %s", v, strings.Join(p.typeNames(), " or "))
}

func (p *place) typeNames() (names []string) {
	for _, s := range p.forms {
		names = append(names, s.Type...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkText checks that tests on strings can hold, and that no other spelling can bypass a deny.
func (p *place) checkText(t Test, deny bool) error {
	testsText := t.Glob != "" || slices.ContainsFunc(t.Enum, func(v Value) bool { _, ok := v.text(); return ok })
	if !testsText {
		return nil
	}
	var values []string
	allFixed := true
	for _, s := range p.forms {
		if len(s.Type) > 0 && !slices.Contains(s.Type, "string") {
			continue
		}
		allFixed = allFixed && len(s.Enum) > 0
		for _, v := range s.Enum {
			values = append(values, fmt.Sprint(v))
		}
	}
	if allFixed {
		return checkFixed(t, values)
	}
	unambiguous := len(p.kinds) > 0 && !slices.ContainsFunc(p.kinds, func(kind string) bool { return !slices.Contains(oneSpelling, kind) })
	if deny && !unambiguous {
		return errors.New("SPDK may accept other spellings of the same value (names, aliases and UUIDs, letter case, paths), so this deny could be bypassed: " +
			"allow the permitted values instead, or assign the user to a tenant")
	}
	return nil
}

// checkFixed checks tests on a string with a fixed set of values.
func checkFixed(t Test, values []string) error {
	for _, v := range t.Enum {
		if text, ok := v.text(); ok && !slices.Contains(values, text) {
			return fmt.Errorf("%q is impossible here: the values are %s", text, strings.Join(values, ", "))
		}
	}
	if t.Glob != "" && !slices.ContainsFunc(values, func(s string) bool { ok, _ := path.Match(t.Glob, s); return ok }) {
		return fmt.Errorf("%s matches none of %s", t.Glob, strings.Join(values, ", "))
	}
	return nil
}
