package rpcschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// JSONSchemas returns the schemas of the parameters at release r for the methods that the function
// keep selects (nil selects all). The result maps each method to a complete JSON Schema (draft
// 2020-12). Objects reject members that their schemas do not describe. A group of parameters of
// which exactly one must be given becomes oneOf; a group of which at least one must be given
// becomes anyOf. The result's schema is at #/$defs/result. The schemas contain no annotations
// (x-spdk-…); use [Document.Export] for those.
func (d *Document) JSONSchemas(r Release, keep func(*Method) bool) (map[string][]byte, error) {
	raw, err := d.rawDocument()
	if err != nil {
		return nil, err
	}
	open, closed := view{release: r}, view{release: r, closed: true}
	components := map[bool]map[string]any{false: open.members(rawSchemas(raw)), true: closed.members(rawSchemas(raw))}
	all := map[string][]byte{}
	for _, v := range raw["methods"].([]any) {
		rawMethod := v.(map[string]any)
		m := d.byName[rawMethod["name"].(string)]
		if !m.Has(r) || keep != nil && !keep(m) {
			continue
		}
		root, _ := closed.schema(m.paramsObject(r, rawMethod)).(map[string]any)
		m.addGroups(root, r)
		result := any(true)
		if described, ok := rawMethod["result"].(map[string]any); ok {
			result = open.schema(described["schema"])
		}
		defs, sent := map[string]any{}, map[string]any{}
		collectRefs(components[false], result, defs)
		collectRefs(components[true], root, sent)
		maps.Copy(defs, sent)
		defs["result"] = result
		root["$schema"], root["$defs"] = "https://json-schema.org/draft/2020-12/schema", defs
		root["title"], root["description"] = m.Name, m.Summary
		text, err := json.MarshalIndent(plainSchema(root), "", " ")
		if err != nil {
			return nil, fmt.Errorf("write the JSON Schema of %s: %w", m.Name, err)
		}
		all[m.Name] = append(text, '\n')
	}
	return all, nil
}

// addGroups adds the rules that exactly one, or at least one, of a group of parameters must be
// given.
func (m *Method) addGroups(root map[string]any, r Release) {
	var all []any
	for keyword, groups := range map[string][][]string{"oneOf": m.OneOf, "anyOf": m.AnyOf} {
		for _, group := range groups {
			var forms []any
			for _, name := range group {
				if p := m.Param(name); p != nil && p.Schema.Has(r) {
					forms = append(forms, map[string]any{"required": []any{name}})
				}
			}
			if len(forms) > 0 {
				all = append(all, map[string]any{keyword: forms})
			}
		}
	}
	// If the release supports a parameter and its successor, either of the two is enough.
	for _, p := range m.Params {
		if old := m.forerunnerAt(p, r); old != nil && p.Required {
			all = append(all, map[string]any{"anyOf": []any{
				map[string]any{"required": []any{p.Name}}, map[string]any{"required": []any{old.Name}},
			}})
		}
	}
	switch len(all) {
	case 0:
	case 1:
		maps.Copy(root, all[0].(map[string]any))
	default:
		root["allOf"] = all
	}
}

// plainSchema copies a schema without annotations, and redirects its references to $defs.
func plainSchema(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = plainSchema(item)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			name, isText := value.(string)
			switch {
			case strings.HasPrefix(key, "x-spdk-"):
			case key == "$ref" && isText:
				out[key] = "#/$defs/" + strings.TrimPrefix(name, refPrefix)
			default:
				out[key] = plainSchema(value)
			}
		}
		return out
	}
	return v
}
