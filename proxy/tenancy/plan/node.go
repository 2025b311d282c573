package plan

import (
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Node is a schema that may apply to a value. References and unions are resolved, and the node
// inherits the annotations of the schemas that refer to it.
type Node struct {
	*rpcschema.Schema
	Kind      string // x-spdk-resource
	sensitive bool
	opens     *Opening
	// Allocates limits the value, because SPDK allocates memory in proportion to it.
	Allocates *rpcschema.Allocates
}

// Shapes lists the nodes of the schemas in a document. It is safe for concurrent use.
type Shapes struct {
	schema *rpcschema.Document
	known  sync.Map // *rpcschema.Schema → []Node
}

// Nodes lists the nodes of a schema. If s is nil, it returns nil.
func (t *Shapes) Nodes(s *rpcschema.Schema) []Node {
	if s == nil {
		return nil
	}
	if list, ok := t.known.Load(s); ok {
		return list.([]Node)
	}
	list := t.expand(s, Node{}, 0)
	t.known.Store(s, list)
	return list
}

// expand lists the nodes of s. above contains the annotations of the schemas that refer to s.
func (t *Shapes) expand(s *rpcschema.Schema, above Node, depth int) (list []Node) {
	if s == nil || depth > 32 {
		return nil
	}
	n := above
	n.Schema, n.sensitive = s, above.sensitive || s.Sensitive
	if s.Resource != "" {
		n.Kind = s.Resource
	}
	if s.Opens != nil {
		n.opens = &Opening{s.Opens, s.OpensByDefault()}
	}
	if s.Allocates != nil {
		n.Allocates = s.Allocates
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

// Fits reports whether n's schema may apply to a value, based only on the value's type. Values fit
// the variants of a union, not the union itself.
func (n Node) Fits(v any) bool {
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

// Member lists the nodes of an object's member for all nodes of the object, and reports whether the
// schema names the member.
func (t *Shapes) Member(object []Node, name string) (list []Node, named bool) {
	for _, n := range object {
		if p := n.Properties.Get(name); p != nil {
			list, named = append(list, t.Nodes(p)...), true
		}
	}
	if named {
		return list, true
	}
	for _, n := range object {
		list = append(list, t.Nodes(n.Additional.Schema)...)
	}
	return list, false
}

// Items lists the nodes of an array's items.
func (t *Shapes) Items(array []Node) (list []Node) {
	if len(array) == 1 {
		return t.Nodes(array[0].Items)
	}
	for _, n := range array {
		list = append(list, t.Nodes(n.Items)...)
	}
	return list
}

// KindsOf returns the kinds of objects that a value may name.
func KindsOf(list []Node, v any) (kinds []string) {
	for _, n := range list {
		if n.Kind != "" && n.Fits(v) {
			kinds = append(kinds, n.Kind)
		}
	}
	return kinds
}

// Free reports whether v is a string that the schema does not restrict to fixed values, so that it
// may contain a name.
func Free(list []Node, v any) bool {
	if _, text := v.(string); !text {
		return false
	}
	for _, n := range list {
		if n.Fits(v) && len(n.Enum) == 0 && n.Const == nil && n.Format != "uuid" {
			return true
		}
	}
	return false
}
