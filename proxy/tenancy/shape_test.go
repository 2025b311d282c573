package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A value has the forms of its own type only: what a form says of texts says nothing of numbers.
func TestFits(t *testing.T) {
	values := map[string]any{"string": "x", "object": map[string]any{}, "array": []any{}, "boolean": true, "null": nil, "integer": 7.0, "number": 7.0}
	for form := range values {
		n := node{Schema: &rpcschema.Schema{Type: rpcschema.TypeSet{form}}}
		for name, v := range values {
			same := form == name || (form == "integer" || form == "number") && (name == "integer" || name == "number")
			assert.Equal(t, same, n.fits(v), "%s as %s", name, form)
		}
	}
	assert.True(t, node{Schema: &rpcschema.Schema{}}.fits("x"))
	union := &rpcschema.Schema{OneOf: []*rpcschema.Schema{{}}}
	assert.False(t, node{Schema: union}.fits("x"), "a union's variants are its forms")
	assert.False(t, node{Schema: &rpcschema.Schema{AnyOf: union.OneOf}}.fits("x"))
}
