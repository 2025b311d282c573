package rpcschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// A Name identifies a resource in a call, either an existing one or one that the call creates. Kind
// is the value of x-spdk-resource: bdev, lvstore, nqn, …
type Name struct{ Kind, Value string }

// Names lists the resources named in a call's parameters, in the order of the method's parameters.
// It returns at most limit names; more is the number of names that it omits. It ignores secrets,
// including redacted secrets.
func (d *Document) Names(method string, params map[string]any, limit int) (list []Name, more int) {
	m := d.byName[method]
	if m == nil || len(params) == 0 {
		return nil, 0
	}
	w := nameWalk{document: d, limit: limit}
	for _, p := range m.Params {
		if v, ok := params[p.Name]; ok {
			w.walk(p.Schema, "", v)
		}
	}
	return w.list, w.more
}

type nameWalk struct {
	document *Document
	limit    int
	list     []Name
	more     int
}

// walk collects the names in a value. kind is the kind of resource that the enclosing schemas
// specify.
func (w *nameWalk) walk(s *Schema, kind string, v any) {
	if s == nil || s.Sensitive {
		return
	}
	if s.Resource != "" {
		kind = s.Resource
	}
	s = w.document.Resolve(s)
	if s == nil || s.Sensitive {
		return
	}
	if s.Resource != "" {
		kind = s.Resource
	}
	switch v := v.(type) {
	case string:
		w.found(s, kind, v)
	case json.Number:
		w.found(s, kind, v.String())
	case map[string]any:
		if kind != "" {
			w.found(s, kind, addressOf(v))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			w.walk(w.document.member(s, name), "", v[name])
		}
	case []any:
		for _, item := range v {
			w.walk(w.document.item(s), kind, item)
		}
	}
}

func (w *nameWalk) found(s *Schema, kind, value string) {
	if kind == "" {
		kind = w.kindOf(s)
	}
	if kind == "" || value == "" || value == Redacted {
		return
	}
	if len(w.list) == w.limit {
		w.more++
		return
	}
	w.list = append(w.list, Name{kind, value})
}

// addressOf returns a name for an object that identifies a resource by several members. All such
// objects are NVMe-oF or iSCSI addresses.
func addressOf(v map[string]any) string {
	for _, pair := range [][2]string{{"traddr", "trsvcid"}, {"host", "port"}} {
		host, port := v[pair[0]], v[pair[1]]
		switch {
		case host != nil && port != nil:
			return fmt.Sprintf("%v:%v", host, port)
		case host != nil:
			return fmt.Sprint(host)
		}
	}
	return ""
}

// kindOf returns the kind of resource that a string names, according to the variants of a union.
func (w *nameWalk) kindOf(s *Schema) string {
	for _, variant := range slices.Concat(s.OneOf, s.AnyOf) {
		resolved := w.document.Resolve(variant)
		if resolved == nil {
			continue
		}
		for _, kind := range []string{variant.Resource, resolved.Resource, w.kindOf(resolved)} {
			if kind != "" {
				return kind
			}
		}
	}
	return ""
}
