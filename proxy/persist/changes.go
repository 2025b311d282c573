package persist

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// maxTouched limits how many changed objects, and how many removals, are recorded between two
// saves. If some records are dropped, more saved objects than necessary are kept.
const maxTouched = 10000

// changes contains the changes that calls through this proxy have made since the last save.
type changes struct {
	names    map[string]bool // objects that calls named
	exports  map[string]bool // objects that calls named, except those named only to remove a host
	made     map[string]bool // objects that calls created or set; see identity.Of
	removals []removal
}

func newChanges() changes {
	return changes{names: map[string]bool{}, exports: map[string]bool{}, made: map[string]bool{}}
}

// A removal is a call that removes an object from the configuration.
type removal struct {
	names  []rpcschema.Name
	others []string       // other names of the object; see Removing
	undoes string         // see rpcschema.Method.Undoes
	params map[string]any // scalar parameters
}

func (c *changes) note(m *rpcschema.Method, names []rpcschema.Name, params map[string]any, others []string) {
	removesHost := m != nil && m.Removes && slices.ContainsFunc(names, func(n rpcschema.Name) bool { return n.Kind == "host-nqn" })
	for _, n := range names {
		c.name(n.Value)
		if !removesHost {
			c.export(n.Value)
		}
	}
	for _, n := range others {
		c.name(n)
	}
	if m == nil || !m.Removes || len(c.removals) == maxTouched || len(names) == 0 && len(others) == 0 && m.Undoes == "" {
		return
	}
	c.removals = append(c.removals, removal{names, others, m.Undoes, params})
}

// noteDeletedStore records that a disk no longer contains an lvstore, so that the disk need not be
// examined.
func (c *changes) noteDeletedStore(disk string) {
	if len(c.removals) < maxTouched {
		c.removals = append(c.removals, removal{names: []rpcschema.Name{{Kind: "bdev", Value: disk}}, undoes: examineBdev})
	}
}

func (c *changes) name(n string) {
	if len(c.names) < maxTouched {
		c.names[n] = true
	}
}

func (c *changes) markMade(identity string) {
	if len(c.made) < maxTouched && identity != "" {
		c.made[identity] = true
	}
}

func (c *changes) export(n string) {
	if len(c.exports) < maxTouched {
		c.exports[n] = true
	}
}

// add merges the changes that an earlier save failed to write into c.
func (c *changes) add(earlier changes) {
	for n := range earlier.names {
		c.name(n)
	}
	for n := range earlier.exports {
		c.export(n)
	}
	for identity := range earlier.made {
		c.markMade(identity)
	}
	if len(c.removals)+len(earlier.removals) <= maxTouched {
		c.removals = append(earlier.removals, c.removals...)
	}
}

// removed reports whether a recorded call removed the object that this call creates.
func (c *changes) removed(call Call) bool {
	return slices.ContainsFunc(c.removals, func(r removal) bool { return r.removes(call) })
}

// removes reports whether r removes the object that call creates. For a match, call must name every
// object that r names, and must contain all of r's numbers, such as an NSID. If r undoes a specific
// method, call must use that method.
func (r removal) removes(call Call) bool {
	if call.namesAny(r.otherNames()) {
		return true
	}
	if r.undoes != "" && call.Method != r.undoes || r.undoes == "" && len(r.names) == 0 {
		return false
	}
	return !slices.ContainsFunc(r.names, func(n rpcschema.Name) bool { return !call.has(n) }) && hasNumbers(r.params, call.numbers)
}

// scalar returns the text of a string or number, or "" for any other value.
func scalar(v any) string {
	if s, isText := v.(string); isText {
		return s
	}
	return number(v)
}

func number(v any) string {
	switch v := v.(type) {
	case json.Number, int, int64, uint32, uint64, float64:
		return fmt.Sprint(v)
	}
	return ""
}

// numbersOf returns all numbers in params, at any depth.
func numbersOf(params map[string]any) map[string]any {
	numbers := map[string]any{}
	for name, v := range params {
		if members, is := v.(map[string]any); is {
			numbers[name] = numbersOf(members)
		} else if number(v) != "" {
			numbers[name] = v
		}
	}
	return numbers
}

func (r removal) otherNames() map[string]bool {
	names := map[string]bool{}
	for _, n := range r.others {
		names[n] = true
	}
	return names
}

// has reports whether the call names n, either as an existing object or as an object that it
// creates.
func (c Call) has(n rpcschema.Name) bool {
	kind := func(k string) string { return strings.TrimPrefix(k, "new-") }
	return slices.ContainsFunc(c.Names, func(x rpcschema.Name) bool { return x.Value == n.Value && kind(x.Kind) == kind(n.Kind) })
}

// hasNumbers reports whether every number in the parameters a, at any depth, also occurs in b.
func hasNumbers(a, b map[string]any) bool {
	for name, v := range a {
		if number(v) != "" && !hasNumber(b, name, number(v)) {
			return false
		}
	}
	return true
}

func hasNumber(params map[string]any, name, value string) bool {
	for n, v := range params {
		if members, is := v.(map[string]any); is && hasNumber(members, name, value) || n == name && number(v) == value {
			return true
		}
	}
	return false
}
