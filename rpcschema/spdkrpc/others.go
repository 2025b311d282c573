package spdkrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// unmarshalOthers reads an object that may contain members without a struct field. It stores the
// described members in the struct, and all other members in the map.
func unmarshalOthers[T any](text []byte, described any, others *map[string]T, names ...string) error {
	if err := json.Unmarshal(text, described); err != nil {
		return err
	}
	*others = nil
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(text), lenient...)
	defer dec.Reset(noInput)
	if start, err := dec.ReadToken(); err != nil || start.Kind() != '{' {
		return err // null has no members
	}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if slices.Contains(names, name) {
			continue
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("member %s: %w", name, err)
		}
		if *others == nil {
			*others = map[string]T{}
		}
		(*others)[name] = v
	}
	return nil
}

// marshalOthers writes the members in a struct and in a map as one object.
func marshalOthers[T any](described any, others map[string]T) ([]byte, error) {
	text, err := jsonrpc.Marshal(described)
	if err != nil || len(others) == 0 {
		return text, err
	}
	rest, err := jsonrpc.Marshal(others)
	if err != nil || string(text) == "{}" {
		return rest, err
	}
	return append(append(text[:len(text)-1], ','), rest[1:]...), nil
}
