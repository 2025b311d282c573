package figures

import (
	"errors"
	"strconv"

	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A text is a result that is decoded only where necessary. A list of 10,000 bdevs is several MiB
// long, and a Reader needs only a quarter of it.
type text struct{ jsonwalk.Text }

var errNotJSON = errors.New("the result has an unexpected format")

// read parses a result with f. f parses the value at an offset, and returns where the value ends.
func read(raw []byte, f func(t *text, at int) (end int)) error {
	t := &text{jsonwalk.Text{S: string(raw)}}
	begin := t.Space(0)
	if end := f(t, begin); t.Bad || t.Space(end) != len(t.S) {
		return errNotJSON
	}
	return nil
}

// items calls item with the offset of each item of the array at an offset. item returns the end of
// the item.
func (t *text) items(at int, item func(at int) (end int)) (end int) {
	if t.TypeAt(at) != jsonwalk.Array {
		return t.Skip(at)
	}
	w := t.Walk(at)
	for w.Next() {
		w.End = item(w.Value)
	}
	return w.End
}

// members calls member with the name and offset of each member of the object at an offset.
func (t *text) members(at int, member func(name string, at int) (end int)) (end int) {
	if t.TypeAt(at) != jsonwalk.Object {
		return t.Skip(at)
	}
	w := t.Walk(at)
	for w.Next() {
		w.End = member(w.Name, w.Value)
	}
	return w.End
}

// number parses a number into n. It ignores a value that is not an integer.
func (t *text) number(at int, n *uint64) (end int) {
	end = t.Skip(at)
	if v, err := strconv.ParseUint(t.S[at:end], 10, 64); err == nil {
		*n = v
	}
	return end
}

// flag parses a boolean into v.
func (t *text) flag(at int, v *bool) (end int) {
	end = t.Skip(at)
	*v = t.S[at:end] == "true"
	return end
}

// name parses a string into s. It ignores a string that a strict decoder would reject. The string
// shares memory with the text, so callers that keep it must copy it.
func (t *text) name(at int, s *string) (end int) {
	v, sound, end := t.TextAt(at)
	if sound {
		*s = v
	}
	return end
}

// count sets n to the number of items of an array.
func (t *text) count(at int, n *int) (end int) {
	return t.items(at, func(at int) int { *n++; return t.Skip(at) })
}
