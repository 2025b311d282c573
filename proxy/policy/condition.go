package policy

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A condition is one pointer of a rule's Where with its test, compiled for one
// method.
type condition struct {
	text      string     // for people
	spellings []spelling // of the parameter: its own name, and those of its x-spdk-replaces
	rest      []string   // the way further down
	absent    bool       // whether it holds where nothing is given
	deny      bool
}

type spelling struct {
	param string
	test  *test
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
	c.rest = p.tokens[1:]
	isPath := slices.Contains(p.kinds, "file")
	c.spellings = []spelling{{p.tokens[0], newTest(t, func(s span) span { return s }, deny, isPath)}}
	for _, twin := range twins(m, p.tokens[0]) {
		fit := func(s span) span { return twin.fit(s, deny) }
		if len(c.rest) > 0 {
			fit = func(s span) span { return s } // factors are between numbers, and this is about a member
		}
		c.spellings = append(c.spellings, spelling{twin.param, newTest(t, fit, deny, isPath)})
	}
	return c, nil
}

// A twin is another parameter that means the same, in other releases or units.
type twin struct {
	param string
	fit   func(s span, deny bool) span
}

// twins are the forerunners and successors of a parameter: targets of some
// releases take either.
func twins(m *rpcschema.Method, param string) (found []twin) {
	for _, p := range m.Params {
		rep := p.Schema.Replaces
		if rep == nil {
			continue
		}
		factor := new(big.Int).SetUint64(max(1, rep.Factor))
		switch param {
		case p.Name:
			found = append(found, twin{rep.Name, func(s span, deny bool) span { return s.asForerunner(factor, deny) }})
		case rep.Name:
			found = append(found, twin{p.Name, func(s span, deny bool) span { return s.asSuccessor(factor, deny) }})
		}
	}
	return found
}

// holds tells whether the rule is to be taken as holding for these parameters.
// Of several spellings that are given each counts: an allow wants all of them to
// hold, a deny one.
func (c *condition) holds(params map[string]any) bool {
	given := false
	for _, s := range c.spellings {
		v, ok := params[s.param]
		if !ok {
			continue
		}
		given = true
		if c.within(v, c.rest, s.test) == c.deny {
			return c.deny
		}
	}
	if !given {
		return c.absent
	}
	return !c.deny
}

// within follows the way down from v. Of a list's items an allow wants all to
// hold, a deny one.
func (c *condition) within(v any, way []string, t *test) bool {
	if len(way) == 0 {
		return t.holds(v)
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
		return c.within(member, way[1:], t)
	}
	list, ok := v.([]any)
	if !ok {
		return c.deny
	}
	if len(list) == 0 {
		return c.absent
	}
	for _, item := range list {
		if c.within(item, way[1:], t) == c.deny {
			return c.deny
		}
	}
	return !c.deny
}
