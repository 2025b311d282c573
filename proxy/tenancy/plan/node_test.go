package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A value fits only nodes of its own type.
func TestValuesFitNodesOfTheirType(t *testing.T) {
	values := map[string]any{"string": "x", "object": map[string]any{}, "array": []any{}, "boolean": true, "null": nil, "integer": 7.0, "number": 7.0}
	for typ := range values {
		n := Node{Schema: &rpcschema.Schema{Type: rpcschema.TypeSet{typ}}}
		for name, v := range values {
			same := typ == name || (typ == "integer" || typ == "number") && (name == "integer" || name == "number")
			assert.Equal(t, same, n.Fits(v), "%s as %s", name, typ)
		}
	}
	assert.True(t, Node{Schema: &rpcschema.Schema{}}.Fits("x"))
	union := &rpcschema.Schema{OneOf: []*rpcschema.Schema{{}}}
	assert.False(t, Node{Schema: union}.Fits("x"), "each variant of a union is a separate node")
	assert.False(t, Node{Schema: &rpcschema.Schema{AnyOf: union.OneOf}}.Fits("x"))
}
