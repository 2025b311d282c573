package rpcschema

import "slices"

// Redacted is the text that replaces secrets in logs.
const Redacted = "[redacted]"

// Redact returns a copy of params with the values of all sensitive members replaced, at any depth.
// Values that the schema does not describe, including all parameters of an unknown method, are also
// replaced, because they may be secret.
func (d *Document) Redact(method string, params map[string]any) map[string]any {
	if params == nil {
		return nil
	}
	m := d.byName[method]
	clean := make(map[string]any, len(params))
	for name, v := range params {
		var s *Schema
		if m != nil {
			if p := m.Param(name); p != nil {
				s = p.Schema
			}
		}
		clean[name] = d.redact(s, v)
	}
	return clean
}

func (d *Document) redact(s *Schema, v any) any {
	if s == nil || s.Sensitive {
		return Redacted
	}
	s = d.Resolve(s)
	if s == nil || s.Sensitive {
		return Redacted
	}
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, member := range v {
			clean[name] = d.redact(d.member(s, name), member)
		}
		return clean
	case []any:
		clean := make([]any, len(v))
		for i, item := range v {
			clean[i] = d.redact(d.item(s), item)
		}
		return clean
	}
	return v
}

// member returns the schema of an object's member, even if only one form of a union has the member.
func (d *Document) member(s *Schema, name string) *Schema {
	if p := s.Properties.Get(name); p != nil {
		return p
	}
	for _, variant := range slices.Concat(s.OneOf, s.AnyOf) {
		if p := d.member(d.Resolve(variant), name); p != nil {
			return p
		}
	}
	return s.Additional.Schema
}

// item returns the schema of an array's items, even if the array is only one form of a union.
func (d *Document) item(s *Schema) *Schema {
	if s.Items != nil {
		return s.Items
	}
	for _, variant := range slices.Concat(s.OneOf, s.AnyOf) {
		if i := d.item(d.Resolve(variant)); i != nil {
			return i
		}
	}
	return nil
}
