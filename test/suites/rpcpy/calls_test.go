package rpcpy

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
)

// A sampleCall is a call that the schema accepts.
type sampleCall struct {
	kind   string
	method *rpcschema.Method
	params map[string]any
}

// hostile is a string with characters that a shell would interpret.
const hostile = `it's "$HOME" $(id) ` + "`id`" + ` \n; * ~ # é !!`

// callsOf returns calls to each method of a release: with only the required parameters, with all
// parameters, and with several values for each optional parameter or member.
func callsOf(doc *rpcschema.Document, r rpcschema.Release) (list []sampleCall) {
	few, full, extreme := sample.Maker{Document: doc, Release: r}, sample.Maker{Document: doc, Release: r, Full: true}, sample.Maker{Document: doc, Release: r, Full: true, Extreme: true}
	for _, m := range doc.OfSPDK() {
		if !m.Has(r) {
			continue
		}
		add := func(kind string, params map[string]any) {
			if doc.ValidateParams(m.Name, m.Bare(params), r) == nil {
				list = append(list, sampleCall{kind, m, params})
			}
		}
		add("required parameters", few.Params(m))
		add("all parameters", full.Params(m))
		add("extreme parameters", extreme.Params(m))
		if m.Param("num_blocks") != nil && m.Param("block_size") != nil {
			params := few.Params(m)
			params["num_blocks"], params["block_size"] = json.Number("131072"), json.Number("512")
			add("sizes in MiB", params)
		}
		for _, p := range m.Params {
			if !p.Schema.Has(r) {
				continue
			}
			for _, v := range valuesOf(doc, p.Schema, r) {
				params := few.Params(m)
				for _, group := range m.OneOf {
					if slices.Contains(group, p.Name) {
						maps.DeleteFunc(params, func(name string, _ any) bool { return slices.Contains(group, name) })
					}
				}
				params[p.Name] = v
				add("one parameter", params)
			}
		}
	}
	return list
}

// valuesOf returns values for a schema: typical and extreme ones, both booleans, zero, all
// enumerated values, a string that needs quotes, several items, and objects with each member alone.
func valuesOf(doc *rpcschema.Document, use *rpcschema.Schema, r rpcschema.Release) []any {
	few, full, extreme := sample.Maker{Document: doc, Release: r}, sample.Maker{Document: doc, Release: r, Full: true}, sample.Maker{Document: doc, Release: r, Full: true, Extreme: true}
	values := []any{full.Value(use), extreme.Value(use)}
	s := doc.Resolve(use)
	switch s.Type.Main() {
	case "boolean":
		return []any{true, false}
	case "integer":
		return append(values, json.Number("0"), json.Number("-1"), json.Number("7"))
	case "string":
		values = append(values, s.Enum...)
		return append(values, "", "-x", "--x_y", "plain", hostile)
	case "array":
		values = append(values, []any{})
		if s.Items != nil {
			values = append(values, []any{full.Value(s.Items), extreme.Value(s.Items), full.Value(s.Items)}, []any{hostile}, []any{"a b", "c,d"})
		}
	case "object":
		object, _ := few.Value(use).(map[string]any)
		for _, p := range s.Properties {
			if !p.Has(r) {
				continue
			}
			for _, v := range valuesOf(doc, p.Schema, r) {
				with := maps.Clone(object)
				with[p.Name] = v
				values = append(values, with)
			}
		}
	}
	return values
}
