package sample

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Maker creates values for one release. Numbers are of type json.Number, as jsonrpc.DecodeValue
// returns them.
type Maker struct {
	Document *rpcschema.Document
	Release  rpcschema.Release
	// Full adds optional members and array items.
	Full bool
	// Extreme selects the largest numbers and the last of several choices instead of typical
	// values.
	Extreme bool
	// Names contains the values to use for kinds of resources (x-spdk-resource).
	Names map[string]string
}

// Params returns the parameters of a valid call. The map is never nil.
func (k Maker) Params(m *rpcschema.Method) map[string]any {
	params := map[string]any{}
	for _, p := range m.Params {
		if p.Schema.Has(k.Release) && k.wanted(m, p) {
			params[p.Name] = k.Value(p.Schema)
		}
	}
	return params
}

// Result returns a valid result of m.
func (k Maker) Result(m *rpcschema.Method) any { return k.Value(m.Result.Schema) }

// wanted reports whether a parameter is included, given the rules on groups of parameters.
func (k Maker) wanted(m *rpcschema.Method, p *rpcschema.Param) bool {
	for _, q := range m.Params { // an old parameter is omitted if its successor is present
		if q.Schema.Replaces != nil && q.Schema.Replaces.Name == p.Name && q.Schema.Has(k.Release) {
			return false
		}
	}
	for _, group := range m.OneOf {
		if group = k.known(m, group); slices.Contains(group, p.Name) {
			return p.Name == k.choice(group)
		}
	}
	for _, group := range m.AnyOf {
		if group = k.known(m, group); slices.Contains(group, p.Name) {
			return k.Full || p.Name == k.choice(group)
		}
	}
	return k.Full || p.Required || m.RequiredAt(p.Name, k.Release)
}

func (k Maker) known(m *rpcschema.Method, group []string) []string {
	return slices.DeleteFunc(slices.Clone(group), func(name string) bool { return !m.Param(name).Schema.Has(k.Release) })
}

// givesWay reports whether a member's successor is present.
func (k Maker) givesWay(s *rpcschema.Schema, name string) bool {
	return slices.ContainsFunc(s.Properties, func(q rpcschema.Property) bool {
		return q.Replaces != nil && q.Replaces.Name == name && q.Has(k.Release)
	})
}

// Value returns a value that matches the schema.
func (k Maker) Value(s *rpcschema.Schema) any {
	use := s
	s = k.Document.Resolve(s)
	if variants := k.variants(s); len(variants) > 0 {
		return k.Value(k.pick(variants))
	}
	switch {
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return k.enum(s)
	}
	kind := s.Type.Main()
	if kind == "" && len(s.Type) > 0 {
		kind = s.Type[0]
	}
	if k.Extreme && slices.Contains(s.Type, "null") {
		kind = "null"
	}
	switch kind {
	case "string":
		return k.text(use, s)
	case "boolean":
		return true
	case "integer":
		return k.integer(s)
	case "number":
		return json.Number("1.5")
	case "array":
		return k.array(s)
	case "object":
		return k.object(s)
	default:
		return nil
	}
}

func (k Maker) variants(s *rpcschema.Schema) (list []*rpcschema.Schema) {
	for _, v := range slices.Concat(s.OneOf, s.AnyOf) {
		if v.Has(k.Release) {
			list = append(list, v)
		}
	}
	return list
}

func (k Maker) pick(variants []*rpcschema.Schema) *rpcschema.Schema {
	if k.Extreme {
		return variants[len(variants)-1]
	}
	return variants[0]
}

func (k Maker) choice(names []string) string {
	if k.Extreme {
		return names[len(names)-1]
	}
	return names[0]
}

// enum returns an enumerated value that the release supports.
func (k Maker) enum(s *rpcschema.Schema) any {
	known := slices.DeleteFunc(slices.Clone(s.Enum), func(v any) bool {
		return !s.HasValue(fmt.Sprint(v), k.Release)
	})
	if k.Extreme {
		return known[len(known)-1]
	}
	return known[0]
}

func (k Maker) integer(s *rpcschema.Schema) json.Number {
	low, high := bound(s.Minimum, "0"), bound(s.Maximum, "9007199254740991")
	step := bound(s.MultipleOf, "1")
	n := new(big.Int).Set(step)
	if n.Cmp(low) < 0 {
		n.Add(low, step).Sub(n, big.NewInt(1)) // round up to a multiple
	}
	if s.Allocates != nil {
		if least := bound(s.Allocates.AtLeast, "0"); n.Cmp(least) < 0 {
			n.Set(least) // tenants may also send this value
		}
	}
	if k.Extreme || n.Cmp(high) > 0 {
		n.Set(high)
	}
	n.Sub(n, new(big.Int).Mod(n, step))
	return json.Number(n.String())
}

func bound(n json.Number, otherwise string) *big.Int {
	text := n.String()
	if text == "" {
		text = otherwise
	}
	i, ok := new(big.Int).SetString(text, 10)
	if !ok {
		panic("a bound that is not an integer: " + text)
	}
	return i
}

func (k Maker) array(s *rpcschema.Schema) []any {
	n := s.MinItems
	if k.Full {
		n = max(n, 1)
	}
	list := make([]any, n)
	for i := range list {
		if s.Items != nil {
			list[i] = k.Value(s.Items)
		}
	}
	return list
}

func (k Maker) object(s *rpcschema.Schema) map[string]any {
	object := map[string]any{}
	for _, p := range s.Properties {
		if p.Schema.Has(k.Release) && (k.Full || slices.Contains(s.Required, p.Name)) && !k.givesWay(s, p.Name) {
			object[p.Name] = k.Value(p.Schema)
		}
	}
	if s.Additional.Schema != nil && (k.Full || s.MinProperties > 0) {
		object["key"] = k.Value(s.Additional.Schema)
	}
	return object
}

// examples maps each kind of resource to an example name. If a kind has no example, or its example
// does not fit the schema, Maker.text tries the candidates.
var examples = map[string]string{
	"bdev": "Malloc0", "new-bdev": "Malloc1", "lvstore": "lvs0", "new-lvstore": "lvs1", "lvol-name": "volume0",
	"lvstore-uuid": exampleUUID, "nqn": "nqn.2016-06.io.spdk:cnode1", "host-nqn": "nqn.2016-06.io.spdk:host1",
	"iqn": "iqn.2016-06.io.spdk:disk1", "initiator": "iqn.2016-06.io.spdk:host1", "address": "192.0.2.1", "file": "/tmp/file0",
	"key": "key0", "crypto-key": "crypto0",
	"new-nqn": "nqn.2016-06.io.spdk:cnode1", "new-iqn": "iqn.2016-06.io.spdk:disk1", "new-key": "key0",
}

const exampleUUID = "11111111-2222-4333-8444-555555555555"

var candidates = []string{"text", "/tmp/file0", "1:0", "/dev/nbd0", "IPv4", "00112233445566778899AABBCCDDEEFF", "0011223344556677", "match_any", ""}

func (k Maker) text(use, s *rpcschema.Schema) string {
	resource := use.Resource
	if resource == "" {
		resource = s.Resource
	}
	if name, ok := k.Names[resource]; ok && resource != "" {
		return name
	}
	first := examples[resource]
	if s.Format == "uuid" || use.Format == "uuid" {
		first = exampleUUID
	}
	for _, text := range append([]string{first}, candidates...) {
		if text = fit(text, s); fits(text, s) && (text != "" || s.Pattern != "") {
			return text
		}
	}
	panic(fmt.Sprintf("no text for the pattern %q: give package sample a candidate", s.Pattern))
}

// fit lengthens or truncates a string to the length that the schema permits.
func fit(text string, s *rpcschema.Schema) string {
	if len(text) < s.MinLength && text != "" {
		text += strings.Repeat("x", s.MinLength-len(text))
	}
	if s.MaxLength != nil && len(text) > *s.MaxLength {
		text = text[:*s.MaxLength]
	}
	return text
}

func fits(text string, s *rpcschema.Schema) bool {
	if len(text) < s.MinLength || s.MaxLength != nil && len(text) > *s.MaxLength {
		return false
	}
	return s.Pattern == "" || regexp.MustCompile(s.Pattern).MatchString(text)
}
