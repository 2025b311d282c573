package tenancy

import (
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A node is one schema that a value may have, with references and unions resolved, and with the
// annotations of the schemas that lead to it.
type node struct {
	*rpcschema.Schema
	kind      string // x-spdk-resource
	sensitive bool
	opens     *opening
	allocates *rpcschema.Allocates
}

// shapes caches the nodes of each schema.
type shapes struct{ known sync.Map } // *rpcschema.Schema → []node

// nodes lists the nodes of a schema; nil if s is nil.
func (t *Tenancy) nodes(s *rpcschema.Schema) []node {
	if s == nil {
		return nil
	}
	if list, ok := t.shapes.known.Load(s); ok {
		return list.([]node)
	}
	list := t.expand(s, node{}, 0)
	t.shapes.known.Store(s, list)
	return list
}

// expand lists the nodes of s; above has the annotations of the schemas that refer to it.
func (t *Tenancy) expand(s *rpcschema.Schema, above node, depth int) (list []node) {
	if s == nil || depth > 32 {
		return nil
	}
	n := above
	n.Schema, n.sensitive = s, above.sensitive || s.Sensitive
	if s.Resource != "" {
		n.kind = s.Resource
	}
	if s.Opens != nil {
		n.opens = &opening{s.Opens, s.OpensByDefault()}
	}
	if s.Allocates != nil {
		n.allocates = s.Allocates
	}
	if s.Ref != "" {
		return t.expand(t.schema.Schemas()[s.RefName()], n, depth+1)
	}
	list = append(list, n)
	for _, variants := range [][]*rpcschema.Schema{s.OneOf, s.AnyOf} {
		for _, v := range variants {
			list = append(list, t.expand(v, n, depth+1)...)
		}
	}
	return list
}

// fits reports whether a value may have this schema, by its type. A union itself fits no value;
// its variants do.
func (n node) fits(v any) bool {
	if len(n.Type) == 0 {
		return len(n.OneOf)+len(n.AnyOf) == 0
	}
	for _, name := range n.Type {
		switch v.(type) {
		case string:
			if name == "string" {
				return true
			}
		case map[string]any:
			if name == "object" {
				return true
			}
		case []any:
			if name == "array" {
				return true
			}
		case bool:
			if name == "boolean" {
				return true
			}
		case nil:
			if name == "null" {
				return true
			}
		default:
			if name == "integer" || name == "number" {
				return true
			}
		}
	}
	return false
}

// member lists the nodes of an object's member, over all nodes of the object, and reports whether
// the schema names the member.
func (t *Tenancy) member(object []node, name string) (list []node, named bool) {
	for _, n := range object {
		if p := n.Properties.Get(name); p != nil {
			list, named = append(list, t.nodes(p)...), true
		}
	}
	if named {
		return list, true
	}
	for _, n := range object {
		list = append(list, t.nodes(n.Additional.Schema)...)
	}
	return list, false
}

// items lists the nodes of an array's items.
func (t *Tenancy) items(array []node) (list []node) {
	if len(array) == 1 {
		return t.nodes(array[0].Items)
	}
	for _, n := range array {
		list = append(list, t.nodes(n.Items)...)
	}
	return list
}

// kindsOf returns the kinds of objects that a value may name.
func kindsOf(list []node, v any) (kinds []string) {
	for _, n := range list {
		if n.kind != "" && n.fits(v) {
			kinds = append(kinds, n.kind)
		}
	}
	return kinds
}

// free reports whether a value is a string without a fixed set of values, which may contain a name.
func free(list []node, v any) bool {
	if _, text := v.(string); !text {
		return false
	}
	for _, n := range list {
		if n.fits(v) && len(n.Enum) == 0 && n.Const == nil && n.Format != "uuid" {
			return true
		}
	}
	return false
}
