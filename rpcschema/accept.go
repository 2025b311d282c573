package rpcschema

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An acceptor recognizes parameters that are certainly valid, without allocating memory. Nearly all
// calls have such parameters. An acceptor never rejects a call: the JSON Schema validator checks
// whatever it does not accept, and writes the error messages. It understands only the keywords used
// in this project's document; a schema with any other keyword has no acceptor.
type acceptor struct {
	types      typeBits
	properties map[string]*acceptor
	required   []string
	// applies to members not in properties; nil means that no other members are allowed
	others     *acceptor
	items      *acceptor // nil accepts anything
	enum       []any     // nil means any value
	low, high  *integer
	multiple   uint64 // the number must be a multiple of this; 0 means no restriction
	minLength  int
	maxLength  int // -1 means no limit
	minItems   int
	maxItems   int // -1 means no limit
	minMembers int
	pattern    *regexp.Regexp
	anyOf      []*acceptor
}

// typeBits is the set of allowed JSON types. If the set is empty, all types are allowed.
type typeBits uint8

const (
	typeNull typeBits = 1 << iota
	typeBoolean
	typeInteger
	typeNumber
	typeString
	typeArray
	typeObject
)

var typeNames = map[string]typeBits{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber | typeInteger,
	"string": typeString, "array": typeArray, "object": typeObject,
}

func (a *acceptor) accepts(v any) bool {
	if a.enum != nil && !a.listed(v) {
		return false
	}
	if a.anyOf != nil && !slices.ContainsFunc(a.anyOf, func(form *acceptor) bool { return form.accepts(v) }) {
		return false
	}
	switch v := v.(type) {
	case nil:
		return a.allows(typeNull)
	case bool:
		return a.allows(typeBoolean)
	case string:
		return a.allows(typeString) && a.acceptsText(v)
	case json.Number:
		n, ok := parseInteger(v.String())
		return ok && a.allows(typeInteger) && a.acceptsInteger(n)
	case []any:
		return a.allows(typeArray) && a.acceptsItems(v)
	case map[string]any:
		return a.allows(typeObject) && a.acceptsMembers(v)
	}
	return false
}

func (a *acceptor) allows(t typeBits) bool { return a.types == 0 || a.types&t != 0 }

func (a *acceptor) acceptsInteger(n integer) bool {
	return (a.low == nil || !n.less(*a.low)) && (a.high == nil || !a.high.less(n)) && (a.multiple == 0 || n.magnitude%a.multiple == 0)
}

func (a *acceptor) acceptsText(s string) bool {
	if a.minLength > 0 && utf8.RuneCountInString(s) < a.minLength {
		return false
	}
	if a.maxLength >= 0 && len(s) > a.maxLength && utf8.RuneCountInString(s) > a.maxLength {
		return false
	}
	return a.pattern == nil || a.pattern.MatchString(s)
}

func (a *acceptor) acceptsItems(list []any) bool {
	if len(list) < a.minItems || a.maxItems >= 0 && len(list) > a.maxItems {
		return false
	}
	for _, v := range list {
		if a.items != nil && !a.items.accepts(v) {
			return false
		}
	}
	return true
}

func (a *acceptor) acceptsMembers(object map[string]any) bool {
	if len(object) < a.minMembers {
		return false
	}
	for _, name := range a.required {
		if _, given := object[name]; !given {
			return false
		}
	}
	for name, v := range object {
		member := a.properties[name]
		if member == nil {
			member = a.others
		}
		if member == nil || !member.accepts(v) {
			return false
		}
	}
	return true
}

// listed reports whether the enum contains v, which is a string or an integer.
func (a *acceptor) listed(v any) bool {
	for _, want := range a.enum {
		switch want := want.(type) {
		case string:
			if v == any(want) {
				return true
			}
		case integer:
			if number, ok := v.(json.Number); ok {
				if n, ok := parseInteger(number.String()); ok && n == want {
					return true
				}
			}
		}
	}
	return false
}

// An integer holds any int64 or uint64.
type integer struct {
	negative  bool
	magnitude uint64
}

// parseInteger parses an integer written in plain digits.
func parseInteger(text string) (integer, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	magnitude, err := strconv.ParseUint(digits, 10, 64)
	return integer{negative && magnitude != 0, magnitude}, err == nil
}

func (n integer) less(o integer) bool {
	if n.negative != o.negative {
		return n.negative
	}
	return n.magnitude != o.magnitude && (n.magnitude < o.magnitude) != n.negative
}

// acceptors creates acceptors from the same raw schemas as the validators. It creates the acceptor
// of a shared schema only once, which allows recursive schemas.
type acceptors struct {
	schemas map[string]any
	shared  map[string]*acceptor
}

var anything = &acceptor{maxLength: -1, maxItems: -1}

// of returns the acceptor for a schema, or nil if the schema uses an unknown keyword.
func (m *acceptors) of(v any) *acceptor {
	s, ok := v.(map[string]any)
	if !ok {
		if v == true {
			return anything
		}
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		// In area files, only annotations may appear beside a $ref.
		for keyword := range s {
			if keyword != "$ref" && !isAnnotation(keyword) {
				return nil
			}
		}
		return m.ref(strings.TrimPrefix(ref, refPrefix))
	}
	a := &acceptor{}
	if !m.fill(a, s) {
		return nil
	}
	return a
}

func (m *acceptors) ref(name string) *acceptor {
	if a, done := m.shared[name]; done {
		return a
	}
	s, ok := m.schemas[name].(map[string]any)
	if !ok || s["$ref"] != nil {
		return nil
	}
	a := &acceptor{}
	m.shared[name] = a
	if !m.fill(a, s) {
		// Other acceptors may already refer to this acceptor, so it must accept nothing.
		*a = acceptor{enum: []any{}}
	}
	return a
}

func isAnnotation(keyword string) bool {
	return strings.HasPrefix(keyword, "x-spdk-") || slices.Contains([]string{"title", "description", "default", "format"}, keyword)
}

// fill reads the keywords of s into a. It returns false if a keyword is unknown.
func (m *acceptors) fill(a *acceptor, s map[string]any) bool {
	a.maxLength, a.maxItems = -1, -1
	sound := true
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		sound = sound && (isAnnotation(keyword) || m.keyword(a, keyword, s[keyword]))
	}
	_, closed := s["additionalProperties"]
	if !closed {
		a.others = anything
	}
	return sound
}

func (m *acceptors) keyword(a *acceptor, keyword string, v any) (ok bool) {
	switch keyword {
	case "type":
		return a.setTypes(v)
	case "properties":
		members, isMap := v.(map[string]any)
		a.properties = make(map[string]*acceptor, len(members))
		for name, member := range members {
			if a.properties[name] = m.of(member); a.properties[name] == nil {
				return false
			}
		}
		return isMap
	case "required":
		list, isList := v.([]any)
		for _, name := range list {
			a.required = append(a.required, name.(string))
		}
		return isList
	case "additionalProperties":
		a.others = m.of(v)
		return a.others != nil || v == false
	case "items":
		a.items = m.of(v)
		return a.items != nil
	case "anyOf":
		list, isList := v.([]any)
		for _, form := range list {
			if f := m.of(form); f != nil {
				a.anyOf = append(a.anyOf, f)
			}
		}
		return isList && a.anyOf != nil
	case "enum":
		return a.setEnum(v)
	case "minimum", "maximum":
		n, isNumber := v.(json.Number)
		bound, isInteger := parseInteger(n.String())
		if keyword == "minimum" {
			a.low = &bound
		} else {
			a.high = &bound
		}
		return isNumber && isInteger
	case "multipleOf":
		var n int
		n, ok = whole(v)
		a.multiple = uint64(n)
		return ok && n > 0
	case "minLength":
		a.minLength, ok = whole(v)
	case "maxLength":
		a.maxLength, ok = whole(v)
	case "minItems":
		a.minItems, ok = whole(v)
	case "maxItems":
		a.maxItems, ok = whole(v)
	case "minProperties":
		a.minMembers, ok = whole(v)
	case "pattern":
		var err error
		text, isText := v.(string)
		a.pattern, err = regexp.Compile(text)
		return isText && err == nil
	}
	return ok // false for oneOf and other keywords that only the validator can check
}

func (a *acceptor) setTypes(v any) bool {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, name := range list {
		text, _ := name.(string)
		if typeNames[text] == 0 {
			return false
		}
		a.types |= typeNames[text]
	}
	return true
}

func (a *acceptor) setEnum(v any) bool {
	list, isList := v.([]any)
	a.enum = []any{}
	for _, value := range list {
		switch value := value.(type) {
		case string:
			a.enum = append(a.enum, value)
		case json.Number:
			if n, ok := parseInteger(value.String()); ok {
				a.enum = append(a.enum, n)
			}
		}
	}
	return isList
}

func whole(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(n.String())
	return i, err == nil
}
