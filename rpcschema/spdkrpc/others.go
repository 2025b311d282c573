package spdkrpc

import (
	"encoding/json"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// unmarshalOthers reads an object that has more members than a struct: the described members go
// into the struct, all others into the map.
func unmarshalOthers[T any](text []byte, described any, others *map[string]T, names ...string) error {
	if err := json.Unmarshal(text, described); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for _, name := range names {
		delete(members, name)
	}
	*others = nil
	if len(members) == 0 {
		return nil
	}
	*others = make(map[string]T, len(members))
	for name, raw := range members {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("member %s: %w", name, err)
		}
		(*others)[name] = v
	}
	return nil
}

// marshalOthers writes a struct and its other members as one object.
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
