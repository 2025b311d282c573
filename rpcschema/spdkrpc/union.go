package spdkrpc

import (
	"bytes"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A form is one field of a union's struct.
type form struct {
	given bool
	value any
}

// marshalForm writes the only field of a union that is set.
func marshalForm(union string, forms ...form) ([]byte, error) {
	var set []any
	for _, f := range forms {
		if f.given {
			set = append(set, f.value)
		}
	}
	if len(set) != 1 {
		return nil, fmt.Errorf("cannot write a %s: %d of its fields are set: set exactly one", union, len(set))
	}
	return jsonrpc.Marshal(set[0])
}

// wrongForm returns the error for a value whose type the union does not allow. The error does not
// contain the value, which may be secret.
func wrongForm(union, expected string, text []byte) error {
	return fmt.Errorf("cannot read a %s: the value is of type %s: expected %s", union, typeOfJSON(text), expected)
}

// typeOfJSON returns JSON Schema's name for the type of a JSON value; for integers, that is
// "number".
func typeOfJSON(text []byte) string {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return "nothing"
	}
	switch text[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
