package rpcschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Schema is a JSON Schema node, limited to the keywords that the document uses, with the
// document's annotations.
type Schema struct {
	Window
	Ref         string     `json:"$ref"`
	Type        TypeSet    `json:"type"`
	Format      string     `json:"format"`
	Description string     `json:"description"`
	Properties  Properties `json:"properties"`
	Required    []string   `json:"required"`
	Additional  Additional `json:"additionalProperties"`
	Items       *Schema    `json:"items"`
	Enum        []any      `json:"enum"`
	// EnumSince maps enumerated values that were added later than their member to the first release
	// that supports them.
	EnumSince map[string]Release `json:"x-spdk-enum-since"`
	Const     any                `json:"const"`
	Default   any                `json:"default"`
	OneOf     []*Schema          `json:"oneOf"`
	AnyOf     []*Schema          `json:"anyOf"`

	Minimum       json.Number `json:"minimum"` // "" means no minimum
	Maximum       json.Number `json:"maximum"`
	MultipleOf    json.Number `json:"multipleOf"`
	MinLength     int         `json:"minLength"`
	MaxLength     *int        `json:"maxLength"`
	Pattern       string      `json:"pattern"`
	MinItems      int         `json:"minItems"`
	MaxItems      *int        `json:"maxItems"`
	MinProperties int         `json:"minProperties"`

	// Area is the part of SPDK that a shared schema belongs to.
	Area string `json:"x-spdk-area"`
	// Resource is the kind of resource that the value names: bdev, lvstore, nqn, …
	Resource string `json:"x-spdk-resource"`
	// Sensitive means that the value is a secret, which must never be logged.
	Sensitive bool `json:"x-spdk-sensitive"`
	// Opens describes values that give access to additional hosts or to deleted data. nil means
	// that no value does so.
	Opens *Opens `json:"x-spdk-opens"`
	// Allocates marks a number that determines how much memory SPDK allocates; nil for any other
	// value.
	Allocates *Allocates `json:"x-spdk-allocates"`
	// Unit is the unit of a number: bytes, MiB, us, …
	Unit string `json:"x-spdk-unit"`
	// Replaces describes the older member that this member replaced.
	Replaces *Replaces `json:"x-spdk-replaces"`
	// Instead gives advice if the member was removed without a successor.
	Instead string `json:"x-spdk-instead"`
	// DropIf lists the values of a removed member that later releases imply.
	DropIf []any `json:"x-spdk-drop-if"`
	// AnyCaseUntil is the last release that accepted the enumerated values in any letter case.
	AnyCaseUntil Release `json:"x-spdk-any-case-until"`
	// RequiredUntil is the last release that required a parameter or member that is now optional.
	RequiredUntil Release `json:"x-spdk-required-until"`
	// RequiredSince is the first release whose decoder requires a required parameter or member.
	// Earlier releases decode a call without it, and then refuse the call or crash.
	RequiredSince Release `json:"x-spdk-required-since"`
}

// HasValue reports whether release r supports an enumerated value.
func (s *Schema) HasValue(value string, r Release) bool {
	return Window{Since: s.EnumSince[value]}.Has(r)
}

// RefName returns the name of the shared schema that s refers to, or "".
func (s *Schema) RefName() string { return strings.TrimPrefix(s.Ref, refPrefix) }

const refPrefix = "#/components/schemas/"

// A TypeSet is the set of JSON types that a value may have.
type TypeSet []string

// UnmarshalJSON parses a name or a list of names.
func (t *TypeSet) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*t = TypeSet{one}
	return nil
}

// Main returns the type other than null, or "" if there are several or none.
func (t TypeSet) Main() string {
	main := ""
	for _, name := range t {
		if name == "null" {
			continue
		}
		if main != "" {
			return ""
		}
		main = name
	}
	return main
}

// A Property is one member of an object.
type Property struct {
	Name string
	*Schema
}

// Properties lists an object's members in the order of the document.
type Properties []Property

// Get returns the schema of the named member, or nil.
func (p Properties) Get(name string) *Schema {
	for _, q := range p {
		if q.Name == name {
			return q.Schema
		}
	}
	return nil
}

// UnmarshalJSON preserves the order of members, which a map would lose.
func (p *Properties) UnmarshalJSON(b []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		q := Property{Name: name.String(), Schema: &Schema{}}
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if err := decode(raw, q.Schema); err != nil {
			return fmt.Errorf("property %s: %w", q.Name, err)
		}
		*p = append(*p, q)
	}
	return nil
}

// Additional is the value of the keyword additionalProperties: absent, a boolean or a schema.
type Additional struct {
	Given   bool
	Allowed bool
	Schema  *Schema // if set, members that match this schema are allowed
}

// UnmarshalJSON parses a boolean or a schema.
func (a *Additional) UnmarshalJSON(b []byte) error {
	a.Given = true
	if b[0] != '{' {
		return json.Unmarshal(b, &a.Allowed)
	}
	a.Allowed = true
	return decode(b, &a.Schema)
}

// decode is like json.Unmarshal, but preserves the digits of numbers in Enum, Const and Default,
// because a float64 cannot represent every uint64.
func decode(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(v)
}
