package spdktest

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// windowed reports whether a result has members that release r doesn't write.
func windowed(doc *rpcschema.Document, s *rpcschema.Schema, r rpcschema.Release, seen []*rpcschema.Schema) bool {
	s = doc.Resolve(s)
	if s == nil || slices.Contains(seen, s) {
		return false
	}
	seen = append(seen, s)
	for _, p := range s.Properties {
		if !p.Has(r) || windowed(doc, p.Schema, r, seen) {
			return true
		}
	}
	return windowed(doc, s.Items, r, seen) || windowed(doc, s.Additional.Schema, r, seen)
}

// trim takes out of a result what release r doesn't write, so that the engine
// can be written for all releases at once.
func trim(doc *rpcschema.Document, s *rpcschema.Schema, r rpcschema.Release, v any) any {
	s = doc.Resolve(s)
	if s == nil {
		return v
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = trim(doc, s.Items, r, v[i])
		}
	case map[string]any:
		for name, member := range v {
			switch p := s.Properties.Get(name); {
			case p == nil:
				v[name] = trim(doc, s.Additional.Schema, r, member)
			case !p.Has(r):
				delete(v, name)
			default:
				v[name] = trim(doc, p, r, member)
			}
		}
	}
	return v
}
