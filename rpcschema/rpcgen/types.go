package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// raw is the Go type for values that the schema does not describe.
const raw = "json.RawMessage"

var integerTypes = map[string]string{
	"": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "int32": "int32", "int64": "int64",
}

// goType returns a schema's Go type. hint is the name of the type to declare for an object without
// a name.
func (g *generator) goType(s *rpcschema.Schema, hint string) (string, error) {
	if s.Ref != "" {
		return s.RefName(), nil
	}
	switch s.Type.Main() {
	case "string":
		if len(s.Enum) > 0 {
			return hint, g.declareEnum(hint, s)
		}
		return "string", nil
	case "boolean":
		return "bool", nil
	case "number":
		return "float64", nil
	case "integer":
		typ, ok := integerTypes[s.Format]
		if !ok {
			return "", fmt.Errorf("integer of unknown format %q", s.Format)
		}
		return typ, nil
	case "array":
		if s.Items == nil {
			return "[]" + raw, nil
		}
		item, err := g.goType(s.Items, strings.TrimSuffix(hint, "s"))
		if err == nil && g.nullable(s.Items) && !g.nilable(item) {
			item = "*" + item
		}
		return "[]" + item, err
	case "object":
		return g.objectType(s, hint)
	}
	if forms := g.formsOf(s); forms != nil {
		return hint, g.declareUnion(hint, s, forms)
	}
	return raw, nil
}

func (g *generator) objectType(s *rpcschema.Schema, hint string) (string, error) {
	switch {
	case len(s.Properties) > 0:
		return hint, g.declareObject(hint, s)
	case s.Additional.Schema != nil:
		value, err := g.goType(s.Additional.Schema, hint+"Value")
		return "map[string]" + value, err
	default:
		return "map[string]" + raw, nil
	}
}

// declareNamed declares a shared schema.
func (g *generator) declareNamed(name string, s *rpcschema.Schema) error {
	if s.Type.Main() == "object" && len(s.Properties) > 0 && len(s.OneOf) == 0 {
		return g.declareObject(name, s)
	}
	if s.Ref == "" && s.Type.Main() == "string" && len(s.Enum) > 0 {
		return g.declareEnum(name, s)
	}
	if forms := g.formsOf(s); forms != nil {
		return g.declareUnion(name, s, forms)
	}
	typ, err := g.goType(s, name+"Value")
	if err != nil {
		return fmt.Errorf("schema %s: %w", name, err)
	}
	if err := g.claim(name, docOf(s)); err != nil {
		return err
	}
	equals := ""
	if typ == raw {
		equals = "= " // a new type would lose RawMessage's methods
	}
	fmt.Fprintf(&g.area.types, "type %s %s%s\n\n", name, equals, typ)
	return nil
}

// declareEnum declares the type of an enumerated value. If two methods share a description, they
// also share the type.
func (g *generator) declareEnum(name string, s *rpcschema.Schema) error {
	if err := g.claim(name, docOf(s)); err != nil {
		return err
	}
	fmt.Fprintf(&g.area.types, "type %s string\n\n", name)
	g.constants(name, s.Enum)
	return nil
}

func (g *generator) constants(typ string, values []any) {
	b := &g.area.types
	fmt.Fprintf(b, "// The values of %s.\nconst (\n", typ)
	declared := map[string]bool{}
	for _, v := range values {
		name := typ + goName(fmt.Sprint(v))
		if !declared[name] { // two values that differ only in letter case share a constant
			fmt.Fprintf(b, "\t%s %s = %q\n", name, typ, v)
		}
		declared[name] = true
	}
	b.WriteString(")\n\n")
}

// A field is an object's member that becomes a Go struct field.
type field struct {
	json, doc string
	required  bool
	schema    *rpcschema.Schema
}

// fieldsOf returns an object's members. A member that does not exist in every release may be absent
// even if it is required.
func fieldsOf(s *rpcschema.Schema) []field {
	var fields []field
	for _, p := range s.Properties {
		always := p.Schema.Window == rpcschema.Window{}
		fields = append(fields, field{json: p.Name, doc: p.Description, required: always && slices.Contains(s.Required, p.Name), schema: p.Schema})
	}
	return fields
}

// declareObject declares an object's struct. Members that the schema does not describe are stored
// in a map, for which encoding/json has no tag.
func (g *generator) declareObject(name string, s *rpcschema.Schema) error {
	if !s.Additional.Allowed {
		return g.declareStruct(name, docOf(s), fieldsOf(s))
	}
	typ := raw
	if s.Additional.Schema != nil {
		var err error
		if typ, err = g.goType(s.Additional.Schema, name+"Value"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := g.declareStruct(name, docOf(s), fieldsOf(s), "\t// Others contains members not listed above, by name.\n\tOthers map[string]"+typ+" `json:\"-\"`\n"); err != nil {
		return err
	}
	names := make([]string, len(s.Properties))
	for i, p := range s.Properties {
		names[i] = fmt.Sprintf("%q", p.Name)
	}
	fmt.Fprintf(&g.area.types, `// UnmarshalJSON reads all members.
func (v *%[1]s) UnmarshalJSON(text []byte) error {
	type described %[1]s
	return unmarshalOthers(text, (*described)(v), &v.Others, %[2]s)
}

// MarshalJSON writes all members.
func (v %[1]s) MarshalJSON() ([]byte, error) {
	type described %[1]s
	return marshalOthers(described(v), v.Others)
}

`, name, strings.Join(names, ", "))
	return nil
}

func (g *generator) declareStruct(name, doc string, fields []field, more ...string) error {
	lines := make([]string, len(fields))
	for i, f := range fields {
		line, err := g.fieldLine(strings.TrimSuffix(name, "Params"), f)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", name, f.json, err)
		}
		lines[i] = line
	}
	if err := g.claim(name, doc); err != nil {
		return err
	}
	fmt.Fprintf(&g.area.types, "type %s struct {\n%s}\n\n", name, strings.Join(append(lines, more...), ""))
	return nil
}

// claim reserves the name of a new type, and writes the type's comment. It returns an error if the
// name is already in use.
func (g *generator) claim(name, doc string) error {
	if other, taken := g.types[name]; taken {
		return fmt.Errorf("two types have the name %s (the other: %s): give one of them a name in schemas", name, other)
	}
	g.types[name] = doc
	comment(&g.area.types, "", name+" "+doc)
	return nil
}

// fieldLine declares one member. An optional member is a pointer, or a slice or map that may be
// nil, to distinguish an absent member from zero.
func (g *generator) fieldLine(owner string, f field) (string, error) {
	typ, err := g.goType(f.schema, owner+goName(f.json))
	if err != nil {
		return "", err
	}
	tag := f.json
	if !f.required {
		tag += ",omitzero"
	}
	if (!f.required || g.nullable(f.schema)) && !g.nilable(typ) {
		typ = "*" + typ
	}
	var b strings.Builder
	for _, line := range strings.Split(g.fieldDoc(f), "\n") {
		if line != "" {
			fmt.Fprintf(&b, "\t// %s\n", line)
		}
	}
	fmt.Fprintf(&b, "\t%s %s `json:%q`\n", goName(f.json), typ, tag)
	return b.String(), nil
}

func (g *generator) nilable(typ string) bool {
	if s := g.doc.Schemas()[typ]; s != nil {
		switch s.Type.Main() {
		case "array":
			return true
		case "":
			return g.formsOf(s) == nil
		case "object":
			return len(s.Properties) == 0
		}
	}
	return typ == raw || strings.HasPrefix(typ, "[]") || strings.HasPrefix(typ, "map[")
}

// fieldDoc returns the facts about a member that its Go type does not show.
func (g *generator) fieldDoc(f field) string {
	s := f.schema
	var parts []string
	if f.doc != "" {
		parts = append(parts, strings.Join(strings.Fields(f.doc), " "))
	}
	if s.Unit != "" {
		parts = append(parts, "Unit: "+s.Unit+".")
	}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprint(v)
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	if s.Default != nil {
		parts = append(parts, fmt.Sprintf("Default: %v.", s.Default))
	}
	if rep := s.Replaces; rep != nil && rep.BothWays() && s.Since.Known() {
		parts = append(parts, fmt.Sprintf("Sent as %s to releases that do not support it yet.", rep.Name))
	} else if w := s.Window.String(); w != "" {
		parts = append(parts, w+".")
	}
	if s.RequiredUntil.Known() {
		parts = append(parts, fmt.Sprintf("Required up to %s.", s.RequiredUntil))
	}
	if s.Sensitive {
		parts = append(parts, "Secret.")
	}
	return strings.Join(parts, " ")
}

// docOf returns a type's description in a form that can follow the type's name in a doc comment.
func docOf(s *rpcschema.Schema) string {
	if s.Description == "" {
		return "is a part of SPDK's RPCs."
	}
	text := lowerFirst(strings.TrimSpace(s.Description))
	first, _, _ := strings.Cut(text, " ")
	object := s.Type.Main() == "object"
	switch first {
	case "a", "an", "the":
		if object {
			return "describes " + text
		}
		return "is " + text
	case "how", "what", "where", "whether", "which", "who":
		return "states " + text
	}
	if object || s.Type.Main() == "array" {
		return "holds " + text
	}
	return "is the " + text
}
