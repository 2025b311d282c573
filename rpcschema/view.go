package rpcschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// A view copies raw schemas, keeping only the members that one release supports.
type view struct {
	release Release
	closed  bool // objects reject undescribed members, unless the schema allows them
}

func (d *Document) rawDocument() (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(d.raw))
	dec.UseNumber()
	var raw map[string]any
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("load the RPC schema: %w", err)
	}
	return raw, nil
}

func rawSchemas(raw map[string]any) map[string]any {
	components, _ := raw["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	return schemas
}

// schema copies one schema. It descends only into keywords that contain schemas, because a member
// may have the same name as a keyword.
func (w view) schema(v any) any {
	s, ok := v.(map[string]any)
	if !ok {
		return v // the schemas true and false
	}
	out := make(map[string]any, len(s))
	for keyword, value := range s {
		switch keyword {
		case "properties":
			members, _ := value.(map[string]any)
			out[keyword] = w.members(members)
		case "items", "additionalProperties":
			out[keyword] = w.schema(value)
		case "oneOf", "anyOf":
			list, _ := value.([]any)
			if variants := w.variants(list); len(variants) > 0 {
				out[keyword] = variants
			}
		case "enum":
			out[keyword] = w.enum(value, s["x-spdk-enum-since"])
		default:
			out[keyword] = value
		}
	}
	members, ok := out["properties"].(map[string]any)
	if !ok {
		return out
	}
	if required, ok := out["required"].([]any); ok {
		out["required"] = slices.DeleteFunc(slices.Clone(required), func(name any) bool {
			member, there := members[name.(string)]
			if old := forerunner(members, member); old != "" && out["anyOf"] == nil {
				// Either the old or the new member is enough.
				out["anyOf"] = []any{
					map[string]any{"type": "object", "required": []any{name}}, map[string]any{"type": "object", "required": []any{old}},
				}
				return true
			}
			return !there
		})
	}
	if _, said := out["additionalProperties"]; w.closed && !said {
		out["additionalProperties"] = false
	}
	return out
}

// forerunner returns the name of the member that the given one has replaced, if both exist.
func forerunner(members map[string]any, member any) string {
	s, _ := member.(map[string]any)
	rep, _ := s["x-spdk-replaces"].(map[string]any)
	old, _ := rep["name"].(string)
	if _, there := members[old]; !there {
		return ""
	}
	return old
}

// variants copies the forms of a union that the release supports.
func (w view) variants(list []any) (variants []any) {
	for _, v := range list {
		if s, ok := v.(map[string]any); !ok || windowOf(s).Has(w.release) {
			variants = append(variants, w.schema(v))
		}
	}
	return variants
}

// enum omits values that the release does not yet support.
func (w view) enum(values, since any) any {
	list, _ := values.([]any)
	releases, _ := since.(map[string]any)
	if len(releases) == 0 {
		return values
	}
	return slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		text, _ := releases[fmt.Sprint(v)].(string)
		r, err := ParseRelease(text)
		return err == nil && !(Window{Since: r}).Has(w.release)
	})
}

// members copies named schemas, except those that the release does not support.
func (w view) members(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for name, v := range m {
		if s, ok := v.(map[string]any); ok && !windowOf(s).Has(w.release) {
			continue
		}
		out[name] = w.schema(v)
	}
	return out
}

func windowOf(s map[string]any) (w Window) {
	if since, ok := s["x-spdk-since"].(string); ok {
		w.Since, _ = ParseRelease(since)
	}
	if until, ok := s["x-spdk-until"].(string); ok {
		w.Until, _ = ParseRelease(until)
	}
	return w
}
