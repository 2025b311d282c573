// Package broken creates calls with exactly one mistake each, for testing code that must refuse
// them.
//
// The package depends on the schema and on package sample. It is used only in tests.
package broken

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
)

// A Call is a call with exactly one mistake.
type Call struct {
	// the mistake: missing, mistyped, null, fraction, multiple, too small, too large, too short,
	// too long, pattern, enum, value V of a later release, too few, too many, unknown, release,
	// group
	What    string
	Pointer string // JSON pointer from the parameters to the broken member
	Params  map[string]any
}

// Calls returns invalid calls to m. Each consists of the Maker's valid parameters with one mistake.
func Calls(k sample.Maker, m *rpcschema.Method) []Call { return From(k, m, k.Params(m)) }

// From creates invalid calls from the caller's valid parameters.
func From(k sample.Maker, m *rpcschema.Method, base map[string]any) []Call {
	b := &breaker{Maker: k, base: base}
	for _, p := range m.Params {
		pointer := "/" + p.Name
		value, given := b.base[p.Name]
		switch {
		case !p.Schema.Has(k.Release):
			b.set("release", pointer, k.Value(p.Schema))
			continue
		case given && m.RequiredAt(p.Name, k.Release):
			b.set("missing", pointer, nothing)
		case !given && b.inGroup(m, p.Name):
			continue // skip it if another parameter would also violate the rule on the group
		case !given:
			value = k.Value(p.Schema)
		}
		with := &breaker{Maker: k, base: maps.Clone(b.base)}
		with.base[p.Name] = value
		with.value(pointer, p.Schema, value)
		b.found = append(b.found, with.found...)
	}
	b.set("unknown", "/no_such_parameter", json.Number("1"))
	b.groups(m)
	return b.found
}

type breaker struct {
	sample.Maker
	base  map[string]any
	found []Call
}

func (b *breaker) inGroup(m *rpcschema.Method, name string) bool {
	for _, group := range m.OneOf {
		if slices.Contains(group, name) {
			return true
		}
	}
	return slices.ContainsFunc(m.Params, func(p *rpcschema.Param) bool { return p.Schema.Replaces != nil && p.Schema.Replaces.Name == name })
}

// groups creates calls that violate the rules on groups of parameters: calls with two parameters
// from a group that allows only one, and calls without any parameter from a required group.
func (b *breaker) groups(m *rpcschema.Method) {
	for _, group := range slices.Concat(m.OneOf, m.AnyOf) {
		group = b.known(m, group)
		if len(group) == 0 {
			continue
		}
		none := maps.Clone(b.base)
		for _, name := range group {
			delete(none, name)
		}
		b.found = append(b.found, Call{"group", "", none})
	}
	for _, group := range m.OneOf {
		all := maps.Clone(b.base)
		group = b.known(m, group)
		for _, name := range group {
			all[name] = b.Value(m.Param(name).Schema)
		}
		if len(group) > 1 {
			b.found = append(b.found, Call{"group", "", all})
		}
	}
}

// known returns the parameters of a group that the release supports.
func (b *breaker) known(m *rpcschema.Method, group []string) []string {
	return slices.DeleteFunc(slices.Clone(group), func(name string) bool { return !m.Param(name).Schema.Has(b.Release) })
}

// variants returns the forms of a union that the release supports.
func (b *breaker) variants(s *rpcschema.Schema) []*rpcschema.Schema {
	return slices.DeleteFunc(slices.Concat(s.OneOf, s.AnyOf), func(v *rpcschema.Schema) bool { return !v.Has(b.Release) })
}

// nothing represents an absent member.
var nothing = new(int)

func (b *breaker) set(defect, pointer string, value any) {
	params := replace(b.base, strings.Split(pointer[1:], "/"), value).(map[string]any)
	b.found = append(b.found, Call{defect, pointer, params})
}

// replace returns a copy with the value at the path replaced.
func replace(at any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch at := at.(type) {
	case []any:
		list := slices.Clone(at)
		list[0] = replace(list[0], path[1:], value) // all items in a sample's array are equal
		return list
	case map[string]any:
		object := maps.Clone(at)
		if len(path) == 1 && value == any(nothing) {
			delete(object, path[0])
		} else {
			object[path[0]] = replace(object[path[0]], path[1:], value)
		}
		return object
	}
	return at
}

// value breaks one value and its members in every possible way.
func (b *breaker) value(pointer string, s *rpcschema.Schema, value any) {
	s = b.Document.Resolve(s)
	variants := b.variants(s)
	types := slices.Clone(s.Type)
	for _, v := range variants {
		types = append(types, b.Document.Resolve(v).Type...)
	}
	if len(types) == 0 {
		return // every value is valid here
	}
	b.set("mistyped", pointer, otherType(types))
	if !slices.Contains(types, "null") {
		b.set("null", pointer, nil)
	}
	if len(variants) > 0 {
		return
	}
	if len(s.Enum) > 0 {
		b.enum(pointer, s)
		return
	}
	switch value := value.(type) {
	case json.Number:
		b.number(pointer, s)
	case string:
		b.text(pointer, s)
	case []any:
		b.array(pointer, s, value)
	case map[string]any:
		b.object(pointer, s, value)
	}
}

// otherType returns a value whose type is not allowed.
func otherType(types []string) any {
	switch {
	case !slices.Contains(types, "string"):
		return "text"
	case !slices.Contains(types, "boolean"):
		return true
	default:
		return json.Number("7")
	}
}

func (b *breaker) enum(pointer string, s *rpcschema.Schema) {
	for _, v := range s.Enum {
		if text := fmt.Sprint(v); !s.HasValue(text, b.Release) {
			b.set("value "+text, pointer, v)
		}
	}
	if s.Type.Main() == "string" {
		b.set("enum", pointer, "no_such_value")
		return
	}
	b.set("enum", pointer, json.Number("3"))
}

func (b *breaker) number(pointer string, s *rpcschema.Schema) {
	if s.Type.Main() != "integer" {
		return
	}
	b.set("fraction", pointer, json.Number("1.5"))
	one := big.NewInt(1)
	if s.MultipleOf != "" {
		valid, _ := b.Value(s).(json.Number)
		b.set("multiple", pointer, next(valid, one))
	}
	if s.Minimum != "" {
		b.set("too small", pointer, next(s.Minimum, big.NewInt(-1)))
	}
	if s.Maximum != "" {
		b.set("too large", pointer, next(s.Maximum, one))
	}
}

// next returns the sum of an integer and a step.
func next(n json.Number, step *big.Int) json.Number {
	i, ok := new(big.Int).SetString(n.String(), 10)
	if !ok {
		panic("a bound that is not an integer: " + n.String())
	}
	return json.Number(i.Add(i, step).String())
}

func (b *breaker) text(pointer string, s *rpcschema.Schema) {
	if s.MinLength > 0 {
		b.set("too short", pointer, strings.Repeat("x", s.MinLength-1))
	}
	if s.MaxLength != nil {
		b.set("too long", pointer, strings.Repeat("x", *s.MaxLength+1))
	}
	const odd = "\tno:such\x7ftext"
	if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(odd) {
		b.set("pattern", pointer, odd)
	}
}

func (b *breaker) array(pointer string, s *rpcschema.Schema, value []any) {
	if s.Items == nil {
		return
	}
	full := b.Maker
	full.Full = true
	item := full.Value(s.Items)
	if s.MinItems > 0 {
		b.set("too few", pointer, slices.Repeat([]any{item}, s.MinItems-1))
	}
	if s.MaxItems != nil {
		b.set("too many", pointer, slices.Repeat([]any{item}, *s.MaxItems+1))
	}
	if len(value) > 0 {
		b.value(pointer+"/0", s.Items, value[0])
	}
}

func (b *breaker) object(pointer string, s *rpcschema.Schema, value map[string]any) {
	for _, p := range s.Properties {
		if !p.Schema.Has(b.Release) {
			continue
		}
		member, given := value[p.Name]
		if given && slices.Contains(s.Required, p.Name) {
			b.set("missing", pointer+"/"+p.Name, nothing)
		}
		if given {
			b.value(pointer+"/"+p.Name, p.Schema, member)
		}
	}
	if !s.Additional.Allowed {
		b.set("unknown", pointer+"/no_such_member", json.Number("1"))
	}
}
