package spdktest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A decoder decodes parameters as a method's spdk_json_decode_object call does. It checks names,
// JSON types and the ranges of integers. Like SPDK, the engine checks other restrictions (enums,
// lengths, patterns) later, if at all.
type decoder struct {
	fields      map[string]field
	required    []string
	relaxed     bool // unknown members are ignored
	optional    bool // params may be omitted
	none        bool // params must be omitted
	decodeError int  // code of the response if the parameters cannot be decoded

	ignoresParams bool
}

// A field describes the type of a JSON object's member.
type field struct {
	kind   string // string, boolean, integer, number, array, object, or "" for any type
	format string // of an integer or string
	item   *field // of an array
	object *decoder
}

func newDecoder(doc *rpcschema.Document, m *rpcschema.Method, r rpcschema.Release) decoder {
	d := decoder{fields: map[string]field{}, none: len(m.Params) == 0, optional: true, decodeError: m.DecodeError}
	d.ignoresParams = d.none && m.WithoutParams() == rpcschema.ParamsEither
	d.relaxed = m.IgnoresUnknown(r)
	for _, p := range m.Params {
		if !p.Schema.Has(r) {
			continue
		}
		d.fields[p.Name] = newField(doc, p.Schema, r)
		if m.DecoderRequires(p.Name, r) {
			d.required = append(d.required, p.Name)
		}
	}
	d.optional = len(d.required) == 0 && m.WithoutParams() != rpcschema.ParamsObject && len(m.OneOf)+len(m.AnyOf) == 0
	return d
}

func newField(doc *rpcschema.Document, s *rpcschema.Schema, r rpcschema.Release) field {
	names := s.Resource
	s = doc.Resolve(s)
	f := field{kind: s.Type.Main(), format: s.Format}
	if f.format == "uuid" && (names != "" || s.Resource != "") {
		f.format = "" // SPDK parses the UUID of an object later, when it looks up the object
	}
	switch f.kind {
	case "array":
		if s.Items != nil {
			item := newField(doc, s.Items, r)
			f.item = &item
		}
	case "object":
		if len(s.Properties) == 0 {
			break
		}
		o := decoder{fields: map[string]field{}, relaxed: s.Additional.Allowed}
		for _, p := range s.Properties {
			if !p.Has(r) {
				continue
			}
			o.fields[p.Name] = newField(doc, p.Schema, r)
			if s.DecoderRequires(p.Name, r) {
				o.required = append(o.required, p.Name)
			}
		}
		f.object = &o
	}
	return f
}

// decode checks params, and returns them with all integers written as plain digits.
func (d *decoder) decode(params any) (map[string]any, bool) {
	if params == nil {
		return nil, d.none || d.optional
	}
	if d.none {
		return nil, false
	}
	return d.object(params)
}

func (d *decoder) object(v any) (map[string]any, bool) {
	object, ok := v.(map[string]any)
	if !ok || object[twice] != nil {
		return nil, false
	}
	out := make(map[string]any, len(object))
	for name, member := range object {
		f, known := d.fields[name]
		if !known {
			if !d.relaxed {
				return nil, false
			}
			continue
		}
		if out[name], ok = f.decode(member); !ok {
			return nil, false
		}
	}
	for _, name := range d.required {
		if _, given := object[name]; !given {
			return nil, false
		}
	}
	return out, true
}

func (f *field) decode(v any) (any, bool) {
	switch f.kind {
	case "string":
		s, ok := v.(string)
		return s, ok && !strings.Contains(s, "\x00") && (f.format != "uuid" || validUUID(s))
	case "boolean":
		b, ok := v.(bool)
		return b, ok
	case "integer":
		return integer(v, f.format)
	case "number":
		n, ok := v.(json.Number)
		return n, ok
	case "array":
		list, ok := v.([]any)
		if !ok {
			return nil, false
		}
		out := make([]any, len(list))
		for i, item := range list {
			if f.item == nil {
				out[i] = item
				continue
			}
			if out[i], ok = f.item.decode(item); !ok {
				return nil, false
			}
		}
		return out, true
	case "object":
		if f.object != nil {
			return f.object.object(v)
		}
		object, ok := v.(map[string]any)
		return object, ok
	}
	return v, true
}

var integerBounds = map[string]struct {
	min int64
	max uint64
}{
	"uint8": {0, math.MaxUint8}, "uint16": {0, math.MaxUint16}, "uint32": {0, math.MaxUint32}, "uint64": {0, math.MaxUint64},
	"int32": {math.MinInt32, math.MaxInt32}, "int64": {math.MinInt64, math.MaxInt64}, "": {math.MinInt64, math.MaxInt64},
}

// integer parses an integer in any notation that SPDK accepts: 5, 5.0, 5e0.
func integer(v any, format string) (any, bool) {
	text, ok := v.(json.Number)
	if !ok || len(text) > 64 {
		return nil, false
	}
	r, ok := new(big.Rat).SetString(text.String())
	if !ok || !r.IsInt() {
		return nil, false
	}
	n, bounds := r.Num(), integerBounds[format]
	if bounds.min == 0 && text[0] == '-' {
		return nil, false // negative, or -0
	}
	if n.Cmp(big.NewInt(bounds.min)) < 0 || n.Cmp(new(big.Int).SetUint64(bounds.max)) > 0 {
		return nil, false
	}
	return json.Number(n.String()), true
}

// fill copies decoded parameters into a method's parameter struct.
func fill(params map[string]any, into any) error {
	text, err := jsonrpc.Marshal(params)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// validUUID reports whether SPDK accepts s as a UUID.
func validUUID(s string) bool {
	_, err := uuid.Parse(s)
	return err == nil && len(s) == 36
}

// valuesOf returns the enumerated values of a parameter in the schema.
func valuesOf(method, param string) []string {
	doc := rpcschema.Default()
	m, _ := doc.Method(method)
	var values []string
	for _, v := range doc.Resolve(m.Param(param).Schema).Enum {
		values = append(values, fmt.Sprint(v))
	}
	return values
}
