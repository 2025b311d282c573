package policy

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// A test is a compiled Test.
//
// An uncertain value (a number written as 1e3, null, another type) counts against the call: a test
// in an allow does not hold, but a test in a deny does.
type test struct {
	deny bool
	path bool // whether the value is a path on the target's host

	glob    string
	texts   []string
	bools   []bool
	numbers []number
	enum    bool
	between *interval

	tests bool // whether the test concerns the value, not just the presence of the parameter
	given bool // the result if tests is false
}

func newTest(t Test, deny, isPath bool) *test {
	c := &test{deny: deny, path: isPath, glob: t.Glob, enum: len(t.Enum) > 0}
	if t.Minimum != nil || t.Maximum != nil {
		c.between = new(newInterval(t.Minimum, t.Maximum))
	}
	for _, v := range t.Enum {
		if text, ok := v.text(); ok {
			c.texts = append(c.texts, text)
		}
		if b, ok := v.boolean(); ok {
			c.bools = append(c.bools, b)
		}
		if n, ok := v.number(); ok {
			c.numbers = append(c.numbers, n)
		}
	}
	c.tests = c.glob != "" || c.enum || c.between != nil
	c.given = t.Absent != nil && !*t.Absent
	return c
}

// holds reports whether a value passes the test.
func (t *test) holds(v any) bool {
	switch {
	case v == nil:
		return t.deny
	case !t.tests:
		return t.given
	}
	return (t.glob == "" || t.matches(v)) && (!t.enum || t.lists(v)) && (t.between == nil || t.inBounds(v))
}

func (t *test) matches(v any) bool {
	text, ok := v.(string)
	if !ok {
		return t.deny
	}
	if t.deny {
		return matchesWidely(t.glob, text)
	}
	if t.path && path.Clean(text) != text {
		return false // for example /dev/mapper/../sda
	}
	ok, err := path.Match(t.glob, text)
	return ok && err == nil
}

// matchesWidely matches globs in denies. It ignores letter case, and lets * match slashes.
func matchesWidely(glob, text string) bool {
	for _, fold := range []func(string) string{func(s string) string { return s }, strings.ToLower} {
		// Replace slashes, because path.Match treats the replacement like any other character.
		if ok, err := path.Match(strings.ReplaceAll(fold(glob), "/", "\x00"), strings.ReplaceAll(fold(text), "/", "\x00")); ok || err != nil {
			return true
		}
	}
	return false
}

func (t *test) lists(v any) bool {
	switch v := v.(type) {
	case string:
		if t.deny {
			return t.texts == nil || slices.ContainsFunc(t.texts, func(s string) bool { return strings.EqualFold(s, v) })
		}
		return slices.Contains(t.texts, v) && (!t.path || path.Clean(v) == v)
	case bool:
		return slices.Contains(t.bools, v) || t.deny && t.bools == nil
	case json.Number:
		n, ok := parseNumber(v.String())
		if !ok || t.numbers == nil {
			return t.deny
		}
		return slices.Contains(t.numbers, n)
	}
	return t.deny
}

func (t *test) inBounds(v any) bool {
	text, ok := v.(json.Number)
	if !ok {
		return t.deny
	}
	n, ok := parseNumber(text.String())
	if !ok {
		return t.deny
	}
	return t.between.contains(n)
}
