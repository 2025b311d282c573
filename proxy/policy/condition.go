package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A condition is a pointer in a rule's Where with its test, compiled for one method.
type condition struct {
	text   string // for error messages and the log
	path   []string
	test   *test
	absent bool // whether the condition holds if the parameter is absent
	deny   bool // whether the condition belongs to a deny
}

// normalize translates the parameters of a call to their newest names, so that a condition on
// size_in_mib also applies to a size in bytes. If the parameters cannot be translated, ok is false,
// and no condition can be tested.
func normalize(m *rpcschema.Method, params map[string]any) (normal map[string]any, ok bool) {
	normal, _, err := m.Translate(params, rpcschema.Future)
	return normal, err == nil
}

// newConditions compiles a rule's conditions for one method.
func newConditions(where map[string]Test, m *rpcschema.Method, schema *rpcschema.Document, deny bool) ([]condition, error) {
	var list []condition
	var wrong []error
	for _, pointer := range slices.Sorted(maps.Keys(where)) {
		c, err := newCondition(pointer, where[pointer], m, schema, deny)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s of %s: %w", pointer, m.Name, err))
		}
		list = append(list, c)
	}
	return list, errors.Join(wrong...)
}

func newCondition(pointer string, t Test, m *rpcschema.Method, schema *rpcschema.Document, deny bool) (condition, error) {
	c := condition{text: pointer + " " + t.String(), absent: deny, deny: deny}
	if t.Absent != nil {
		c.absent = *t.Absent
	}
	p, err := find(pointer, m, schema)
	if err != nil {
		return c, err
	}
	if err := p.checkTest(t, deny); err != nil {
		return c, err
	}
	c.path, c.test = p.tokens, newTest(t, deny, slices.Contains(p.kinds, "file"))
	return c, nil
}

// holds reports whether normalized parameters meet the condition. If this is uncertain, holds
// returns true for a deny and false for an allow.
func (c *condition) holds(params map[string]any) bool { return c.holdsAt(params, c.path) }

// holdsAt follows the path downward from v. For a list, it returns true if all items match in an
// allow, or if any item matches in a deny.
func (c *condition) holdsAt(v any, path []string) bool {
	if len(path) == 0 {
		return c.test.holds(v)
	}
	if path[0] != eachItem {
		object, ok := v.(map[string]any)
		if !ok {
			return c.deny
		}
		member, given := object[path[0]]
		if !given {
			return c.absent
		}
		return c.holdsAt(member, path[1:])
	}
	list, ok := v.([]any)
	if !ok {
		return c.deny
	}
	if len(list) == 0 {
		return c.absent
	}
	for _, item := range list {
		if c.holdsAt(item, path[1:]) == c.deny {
			return c.deny
		}
	}
	return !c.deny
}
