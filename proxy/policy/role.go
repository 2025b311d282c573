package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Role determines which calls its users may make. In YAML, a rule without conditions may be just
// its glob.
type Role struct {
	Extends []string `yaml:"extends"` // roles whose rules this role also contains
	Allow   []Rule   `yaml:"allow"`
	Deny    []Rule   `yaml:"deny"`

	redact bool // results are returned without secrets
}

// A Rule applies to calls of methods that match a glob (* ? [a-z]), if the parameters pass the
// tests.
type Rule struct {
	Method string `yaml:"method" short:"yes"`
	// tests by JSON pointer, in which /* stands for each item of a list; all tests must pass
	Where map[string]Test `yaml:"where" empty:"no"`

	redact bool // results are returned without secrets
}

// A Test is a condition on a parameter. All fields that are set must hold.
type Test struct {
	Glob    string   `yaml:"glob" empty:"no"`
	Enum    []Value  `yaml:"enum" empty:"no"`
	Minimum *Integer `yaml:"minimum" empty:"no"`
	Maximum *Integer `yaml:"maximum" empty:"no"`
	// Absent states whether an absent parameter passes the test. By default, it passes in a deny,
	// but not in an allow.
	Absent *bool `yaml:"absent" empty:"no"`
}

// UnmarshalYAML decodes a rule, or only its glob.
func (r *Rule) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&r.Method)
	}
	type plain Rule
	return n.Decode((*plain)(r))
}

func (r Rule) String() string {
	if len(r.Where) == 0 {
		return r.Method
	}
	var tests []string
	for _, pointer := range slices.Sorted(maps.Keys(r.Where)) {
		tests = append(tests, pointer+" "+r.Where[pointer].String())
	}
	return r.Method + " where " + strings.Join(tests, ", ")
}

func (t Test) String() string {
	var parts []string
	if t.Glob != "" {
		parts = append(parts, "is "+t.Glob)
	}
	if len(t.Enum) > 0 {
		values := make([]string, len(t.Enum))
		for i, v := range t.Enum {
			values[i] = v.String()
		}
		parts = append(parts, "is "+strings.Join(values, " or "))
	}
	if t.Minimum != nil {
		parts = append(parts, "is at least "+t.Minimum.String())
	}
	if t.Maximum != nil {
		parts = append(parts, "is at most "+t.Maximum.String())
	}
	text := strings.Join(parts, " and ")
	switch {
	case t.Absent == nil:
		return text
	case text == "" && *t.Absent:
		return "is absent"
	case text == "":
		return "is given"
	case *t.Absent:
		return text + " or absent"
	}
	return text + " and given"
}

// An Integer is a whole number in the range of int64 or uint64.
type Integer struct{ n *big.Int }

// UnmarshalYAML decodes an integer in plain digits.
func (i *Integer) UnmarshalYAML(n *yaml.Node) error {
	number, ok := wholeNumber(n)
	if !ok {
		return errors.New("a whole number in plain digits, from -9223372036854775808 to 18446744073709551615")
	}
	i.n = number
	return nil
}

func (i Integer) String() string { return i.n.String() }

func (i Integer) number() number {
	return number{i.n.Sign() < 0, new(big.Int).Abs(i.n).Uint64()}
}

// contains a string, json.Number or bool
type Value struct{ v any } // contains a string, json.Number or bool

// Text returns a Value that is a string.
func Text(s string) Value { return Value{s} }

// UnmarshalYAML decodes a scalar. It rejects YAML values of other types, such as 1.5 or null.
func (v *Value) UnmarshalYAML(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!str":
		v.v = n.Value
		return nil
	case "!!bool":
		return n.Decode(&v.v)
	case "!!int":
		if number, ok := wholeNumber(n); ok {
			v.v = json.Number(number.String())
			return nil
		}
	}
	return errors.New("text, a whole number in plain digits, true or false")
}

func (v Value) String() string {
	if v.v == "" {
		return `""`
	}
	return fmt.Sprint(v.v)
}

func (v Value) text() (string, bool) { s, ok := v.v.(string); return s, ok }

func (v Value) boolean() (b, ok bool) { b, ok = v.v.(bool); return b, ok }

func (v Value) number() (n number, ok bool) {
	text, ok := v.v.(json.Number)
	if !ok {
		return n, false
	}
	return parseNumber(text.String())
}

// wholeNumber parses an integer within SPDK's range that has the same meaning in YAML and JSON.
func wholeNumber(n *yaml.Node) (*big.Int, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		return nil, false
	}
	digits := strings.TrimPrefix(n.Value, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		return nil, false
	}
	i, ok := new(big.Int).SetString(n.Value, 10)
	return i, ok && (i.IsInt64() || i.IsUint64())
}
