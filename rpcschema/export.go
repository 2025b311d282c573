package rpcschema

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Export returns the OpenRPC document for release r. It contains only the methods that the function
// keep selects (nil selects all), and the schemas that they refer to. Objects in parameters reject
// members that the document does not describe.
func (d *Document) Export(r Release, keep func(*Method) bool) ([]byte, error) {
	raw, err := d.rawDocument()
	if err != nil {
		return nil, err
	}
	w, strict := view{release: r}, view{release: r, closed: true}
	methods := []any{}
	for _, v := range raw["methods"].([]any) {
		rawMethod := v.(map[string]any)
		m := d.byName[rawMethod["name"].(string)]
		if m.Has(r) && (keep == nil || keep(m)) {
			method, err := w.method(m, rawMethod)
			if err != nil {
				return nil, fmt.Errorf("method %s: %w", m.Name, err)
			}
			methods = append(methods, method)
		}
	}
	raw["methods"] = methods
	used, sent := map[string]any{}, map[string]any{}
	collectRefs(w.members(rawSchemas(raw)), methods, used)
	for _, m := range methods {
		collectRefs(strict.members(rawSchemas(raw)), m.(map[string]any)["params"], sent)
	}
	maps.Copy(used, sent)
	raw["components"] = map[string]any{"schemas": used}
	if info, ok := raw["info"].(map[string]any); ok && r.Known() {
		info["version"] = r.String()
	}
	text, err := json.MarshalIndent(raw, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the OpenRPC document: %w", err)
	}
	return append(text, '\n'), nil
}

// method returns a copy of a method as it is in the view's release.
func (w view) method(m *Method, raw map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(raw))
	for key, value := range raw {
		out[key] = value
	}
	params := []any{}
	list, _ := raw["params"].([]any)
	for _, v := range list {
		p := v.(map[string]any)
		name := p["name"].(string)
		if !m.Param(name).Schema.Has(w.release) {
			continue
		}
		q := map[string]any{"schema": view{release: w.release, closed: true}.schema(p["schema"])}
		for key, value := range p {
			if key != "schema" {
				q[key] = value
			}
		}
		if required := m.RequiredAt(name, w.release); required || m.Param(name).Required {
			q["required"] = required
		}
		params = append(params, q)
	}
	out["params"] = params
	if result, ok := raw["result"].(map[string]any); ok {
		q := map[string]any{}
		for key, value := range result {
			q[key] = value
		}
		q["schema"] = w.schema(result["schema"])
		out["result"] = q
	}
	delete(out, "x-spdk-rpcpy-fails")
	delete(out, "x-spdk-rpcpy")
	words, err := m.RPCPyAt(w.release)
	if words != nil {
		out["x-spdk-rpcpy"] = words
	}
	return out, err
}

// collectRefs adds every schema that v refers to, directly or indirectly, to the set used.
func collectRefs(schemas map[string]any, v any, used map[string]any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			collectRefs(schemas, item, used)
		}
	case map[string]any:
		for key, value := range v {
			ref, isText := value.(string)
			if key != "$ref" || !isText || len(ref) <= len(refPrefix) {
				collectRefs(schemas, value, used)
				continue
			}
			name := ref[len(refPrefix):]
			if _, done := used[name]; done || schemas[name] == nil {
				continue
			}
			used[name] = schemas[name]
			collectRefs(schemas, schemas[name], used)
		}
	}
}
