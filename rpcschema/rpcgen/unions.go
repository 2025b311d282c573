package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A form is one of the possible types of a union's value.
type form struct {
	json   string // JSON name of the form's type
	schema *rpcschema.Schema
}

// formsOf returns the forms of a union other than null, or nil if several forms have the same JSON
// type.
func (g *generator) formsOf(s *rpcschema.Schema) []form {
	if s == nil || s.Ref != "" || s.Type != nil {
		return nil
	}
	var forms []form
	for _, f := range slices.Concat(s.OneOf, s.AnyOf) {
		typ := g.doc.Resolve(f).Type.Main()
		if isNull(f) {
			continue
		}
		if typ == "" || slices.ContainsFunc(forms, func(other form) bool { return jsonKind(other.json) == jsonKind(typ) }) {
			return nil
		}
		forms = append(forms, form{json: typ, schema: f})
	}
	return forms
}

// jsonKind returns the type that JSON text distinguishes: integers are numbers.
func jsonKind(typ string) string {
	if typ == "integer" {
		return "number"
	}
	return typ
}

func isNull(s *rpcschema.Schema) bool { return slices.Equal(s.Type, rpcschema.TypeSet{"null"}) }

// nullable reports whether a value may be null.
func (g *generator) nullable(s *rpcschema.Schema) bool {
	resolved := g.doc.Resolve(s)
	return slices.Contains(s.Type, "null") || slices.ContainsFunc(slices.Concat(resolved.OneOf, resolved.AnyOf), isNull)
}

// declareUnion declares a struct with a field for each form of a union. Exactly one field is set.
func (g *generator) declareUnion(name string, s *rpcschema.Schema, forms []form) error {
	var fields, read, write, expected strings.Builder
	for i, f := range forms {
		field := goName(f.json)
		typ, err := g.goType(f.schema, name+field)
		if err != nil {
			return fmt.Errorf("%s as %s: %w", name, f.json, err)
		}
		if !g.nilable(typ) {
			typ = "*" + typ
		}
		if w := f.schema.Window.String(); w != "" {
			fmt.Fprintf(&fields, "\t// %s.\n", w)
		}
		fmt.Fprintf(&fields, "\t%s %s\n", field, typ)
		fmt.Fprintf(&read, "\tcase %q:\n\t\treturn json.Unmarshal(text, &v.%s)\n", jsonKind(f.json), field)
		fmt.Fprintf(&write, ", form{v.%[1]s != nil, v.%[1]s}", field)
		if i > 0 {
			expected.WriteString(" or ")
		}
		expected.WriteString(f.json)
	}
	if err := g.claim(name, docOf(s)+" Exactly one field must be set."); err != nil {
		return err
	}
	fmt.Fprintf(&g.area.types, `type %[1]s struct {
%[2]s}

// UnmarshalJSON reads a value of one of the types above, and rejects all other values.
func (v *%[1]s) UnmarshalJSON(text []byte) error {
	*v = %[1]s{}
	switch typeOfJSON(text) {
%[3]s	}
	return wrongForm(%[1]q, %[4]q, text)
}

// MarshalJSON writes the field that is set.
func (v %[1]s) MarshalJSON() ([]byte, error) {
	return marshalForm(%[1]q%[5]s)
}

`, name, fields.String(), read.String(), expected.String(), write.String())
	return nil
}
