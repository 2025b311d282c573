package drift

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Against compares the schema at release r with SPDK's own schema file.
func Against(doc *rpcschema.Document, source *Source, r rpcschema.Release) *Report {
	return against(doc, source, known(), r)
}

func against(doc *rpcschema.Document, source *Source, reasons []explanation, r rpcschema.Release) *Report {
	c := comparison{doc: doc, source: source, release: r}
	seen := map[string]bool{}
	for _, theirs := range source.Methods {
		m, err := doc.Find(theirs.Name, r) // Find also finds deprecated names
		if err != nil {
			c.add(theirs.Name, "", Missing, "SPDK's schema has this method")
			continue
		}
		seen[theirs.Name] = true
		c.members(theirs.Name, "", c.params(m), theirs.Params)
	}
	for _, m := range doc.OfSPDK() {
		if m.Has(r) && !seen[m.Name] {
			c.add(m.Name, "", Extra, "SPDK's schema does not have this method")
		}
	}
	return &Report{Subject: source.Path, Release: r, Compared: len(source.Methods), Differences: explain(c.found, reasons, r)}
}

type comparison struct {
	doc     *rpcschema.Document
	source  *Source
	release rpcschema.Release
	found   []Difference
}

// A member is a parameter, or a member of an object within a parameter.
type member struct {
	name     string
	required bool
	schema   *rpcschema.Schema
}

func (c *comparison) add(method, param string, kind Kind, format string, args ...any) {
	c.found = append(c.found, Difference{Method: method, Param: param, Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

func (c *comparison) params(m *rpcschema.Method) (list []member) {
	for _, p := range m.Params {
		list = append(list, member{p.Name, m.RequiredAt(p.Name, c.release), p.Schema})
	}
	return list
}

func membersOf(s *rpcschema.Schema) (list []member) {
	for _, p := range s.Properties {
		list = append(list, member{p.Name, slices.Contains(s.Required, p.Name), p.Schema})
	}
	return list
}

func (c *comparison) members(method, prefix string, ours []member, theirs []SourceParam) {
	seen := map[string]bool{}
	for _, t := range theirs {
		name := prefix + t.Name
		i := slices.IndexFunc(ours, func(m member) bool { return m.name == t.Name && m.schema.Has(c.release) })
		if i < 0 {
			c.add(method, name, Missing, "SPDK's schema has this parameter (%s)", t.Type)
			continue
		}
		seen[t.Name] = true
		if ours[i].required != t.Required {
			c.add(method, name, Required, "ours %t, SPDK's schema %t", ours[i].required, t.Required)
		}
		c.value(method, name, ours[i].schema, t)
	}
	for _, m := range ours {
		if m.schema.Has(c.release) && !seen[m.name] {
			c.add(method, prefix+m.name, Extra, "SPDK's schema does not have this parameter")
		}
	}
}

func (c *comparison) value(method, name string, s *rpcschema.Schema, t SourceParam) {
	want := theirType(t.Type)
	got := c.types(s)
	switch {
	case len(got) > 0 && !slices.Contains(got, want):
		c.add(method, name, Type, "ours %s, SPDK's schema %s", strings.Join(got, " or "), t.Type)
	case t.Type == "enum":
		c.enum(method, name, s, c.source.enum(t.Class))
	case want == "object" && t.Class != "":
		c.members(method, name+".", membersOf(c.shape(s)), c.source.object(t.Class))
	case want == "array" && t.Class != "":
		c.array(method, name, c.shape(s), c.source.array(t.Class))
	}
}

func (c *comparison) array(method, name string, ours *rpcschema.Schema, theirs *SourceArray) {
	if theirs == nil {
		return
	}
	if theirs.Max > 0 && (ours.MaxItems == nil || *ours.MaxItems != theirs.Max) {
		c.add(method, name, Count, "ours %s, SPDK's schema at most %d items", atMost(ours.MaxItems), theirs.Max)
	}
	if ours.Items != nil {
		c.value(method, name+"[]", ours.Items, theirs.Item)
	}
}

func atMost(n *int) string {
	if n == nil {
		return "any number"
	}
	return fmt.Sprintf("at most %d items", *n)
}

func (c *comparison) enum(method, name string, s *rpcschema.Schema, want []string) {
	var got []string
	for _, form := range c.forms(s) {
		for _, v := range form.Enum {
			text := fmt.Sprint(v)
			if !c.release.Before(form.EnumSince[text]) {
				got = append(got, text)
			}
		}
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		c.add(method, name, Enum, "ours %s, SPDK's schema %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// forms returns the forms that a value may have in this release: the variants of a union, or the
// schema itself.
func (c *comparison) forms(s *rpcschema.Schema) (list []*rpcschema.Schema) {
	s = c.doc.Resolve(s)
	variants := slices.Concat(s.OneOf, s.AnyOf)
	if len(variants) == 0 {
		return []*rpcschema.Schema{s}
	}
	for _, v := range variants {
		if v.Has(c.release) {
			list = append(list, c.forms(v)...)
		}
	}
	return list
}

// shape returns the form of a value that has members or items.
func (c *comparison) shape(s *rpcschema.Schema) *rpcschema.Schema {
	forms := c.forms(s)
	for _, form := range forms {
		if len(form.Properties) > 0 || form.Items != nil {
			return form
		}
	}
	return forms[0]
}

// types returns the JSON types that a value may have, and its integer format.
func (c *comparison) types(s *rpcschema.Schema) (types []string) {
	for _, form := range c.forms(s) {
		for _, t := range form.Type {
			if t == "number" {
				t = "integer"
			}
			types = append(types, t)
			if t == "integer" && form.Format != "" {
				types = append(types, form.Format)
			}
		}
	}
	return types
}

// theirType maps the type names in SPDK's schemas, which differ between releases, to JSON types.
// Sized integers stay unchanged.
func theirType(t string) string {
	switch t {
	case "bool", "Boolean":
		return "boolean"
	case "number", "int":
		return "integer"
	case "uuid", "enum":
		return "string"
	case "list", "bitmask":
		return "array"
	case "string map":
		return "object"
	}
	return t
}
