package rpcschema

import (
	"encoding/json"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Discloses reports whether a method's result may hold secrets.
func (d *Document) Discloses(m *Method) bool { return d.secret(m.Result.Schema, nil) }

// secret looks for a sensitive value in a schema. within are the shared schemas
// that it stands in, which may hold themselves.
func (d *Document) secret(s *Schema, within []string) bool {
	if s == nil {
		return false
	}
	if s.Sensitive {
		return true
	}
	if name := s.RefName(); name != "" {
		for _, outer := range within {
			if outer == name {
				return false
			}
		}
		return d.secret(d.schemas[name], append(within, name))
	}
	for _, p := range s.Properties {
		if d.secret(p.Schema, within) {
			return true
		}
	}
	for _, variants := range [][]*Schema{s.OneOf, s.AnyOf, {s.Items, s.Additional.Schema}} {
		for _, v := range variants {
			if d.secret(v, within) {
				return true
			}
		}
	}
	return false
}

// RedactResult writes a result anew without its secrets: a text becomes
// [Redacted], anything else null. Members that the schema does not describe are
// left out: what is not known may be a secret.
func (d *Document) RedactResult(method string, result json.RawMessage) (json.RawMessage, error) {
	m := d.byName[method]
	if m == nil {
		return nil, fmt.Errorf("redact a result: %w", &UnknownMethodError{Method: method})
	}
	v, err := jsonrpc.DecodeValue(result, jsonrpc.Limits{})
	if err != nil {
		return nil, fmt.Errorf("redact the result of %s: %w", method, err)
	}
	text, err := jsonrpc.Marshal(d.withoutSecrets([]*Schema{m.Result.Schema}, v))
	if err != nil {
		return nil, fmt.Errorf("redact the result of %s: %w", method, err)
	}
	return text, nil
}

// withoutSecrets copies a value that may have several forms; where one of them
// is secret, the value is.
func (d *Document) withoutSecrets(use []*Schema, v any) any {
	forms, sensitive := d.forms(use, 0)
	if sensitive || len(forms) == 0 {
		if _, text := v.(string); text {
			return Redacted
		}
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, member := range v {
			if known := membersOf(forms, name); len(known) > 0 {
				clean[name] = d.withoutSecrets(known, member)
			}
		}
		return clean
	case []any:
		var items []*Schema
		for _, s := range forms {
			if s.Items != nil {
				items = append(items, s.Items)
			}
		}
		clean := make([]any, len(v))
		for i, item := range v {
			clean[i] = d.withoutSecrets(items, item)
		}
		return clean
	}
	return v
}

// forms are schemas with their references and unions resolved, and whether any
// of them is sensitive.
func (d *Document) forms(use []*Schema, depth int) (forms []*Schema, sensitive bool) {
	for _, s := range use {
		if s == nil || depth > 32 {
			return nil, true
		}
		sensitive = sensitive || s.Sensitive
		inner := append(append([]*Schema(nil), s.OneOf...), s.AnyOf...)
		if s.Ref != "" {
			inner = append(inner, d.schemas[s.RefName()])
		} else {
			forms = append(forms, s)
		}
		more, secret := d.forms(inner, depth+1)
		forms, sensitive = append(forms, more...), sensitive || secret
	}
	return forms, sensitive
}

// membersOf are the schemas of an object's member over all forms of the object.
func membersOf(forms []*Schema, name string) (found []*Schema) {
	for _, s := range forms {
		if p := s.Properties.Get(name); p != nil {
			found = append(found, p)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, s := range forms {
		if s.Additional.Schema != nil {
			found = append(found, s.Additional.Schema)
		}
	}
	return found
}
