package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A condition is one pointer of a rule's Where with its test, compiled for one
// method.
type condition struct {
	text   string // for people
	way    []string
	test   *test
	absent bool // whether it holds where nothing is given
	deny   bool
}

// newest is after every release: what gave way to something else by then has gone.
var newest = rpcschema.Release{Year: 99, Month: 12}

// asJudged writes the parameters of a call in one way, whatever the release that
// they go to: a size that is given in bytes as size_in_mib, for instance, so that
// a condition on the one holds for the other. Where that cannot be done, ok is
// false, and nothing about them is certain.
func asJudged(m *rpcschema.Method, params map[string]any) (judged map[string]any, ok bool) {
	judged, _, err := m.Translate(params, newest)
	return judged, err == nil
}

// newConditions compiles what a rule says of the parameters of a method.
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
	if err := p.takes(t, deny); err != nil {
		return c, err
	}
	c.way, c.test = p.tokens, newTest(t, deny, slices.Contains(p.kinds, "file"))
	return c, nil
}

// holds tells whether the rule is to be taken as holding for parameters as they
// are judged.
func (c *condition) holds(params map[string]any) bool { return c.within(params, c.way) }

// within follows the way down from v. Of a list's items an allow wants all to
// hold, a deny one.
func (c *condition) within(v any, way []string) bool {
	if len(way) == 0 {
		return c.test.holds(v)
	}
	if way[0] != eachItem {
		object, ok := v.(map[string]any)
		if !ok {
			return c.deny
		}
		member, given := object[way[0]]
		if !given {
			return c.absent
		}
		return c.within(member, way[1:])
	}
	list, ok := v.([]any)
	if !ok {
		return c.deny
	}
	if len(list) == 0 {
		return c.absent
	}
	for _, item := range list {
		if c.within(item, way[1:]) == c.deny {
			return c.deny
		}
	}
	return !c.deny
}
