package rpcschema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// A Violation describes one position where a value does not match the schema.
type Violation struct {
	Pointer string // JSON pointer into the params or the result
	Message string // the mistake and what is expected, but never the value, which may be secret
}

func (v Violation) String() string {
	if v.Pointer == "" {
		return v.Message
	}
	return v.Pointer + ": " + v.Message
}

// Violations lists all positions where a value does not match the schema.
type Violations []Violation

func (v Violations) Error() string {
	lines := make([]string, len(v))
	for i := range v {
		lines[i] = v[i].String()
	}
	return strings.Join(lines, "; ")
}

// An UnknownMethodError reports a method that is not in the schema, or not in the target's release.
type UnknownMethodError struct {
	Method  string
	Release Release // set if the method exists, but not in this release
	Window  Window
	Suggest string // a method with a similar name, or ""
	Now     string // the current name if Method is an old name, or ""
	Instead string // what to do instead of a removed method, or ""
}

func (e *UnknownMethodError) Error() string {
	if e.Now != "" {
		return fmt.Sprintf("method %s is called %s now", e.Method, e.Now)
	}
	if e.Release.Known() {
		text := fmt.Sprintf("method %s exists in %s, but the target runs %s", e.Method, e.Window, e.Release)
		if e.Instead != "" && e.Window.Until.Before(e.Release) {
			text += ": " + e.Instead
		}
		return text
	}
	if e.Suggest != "" {
		return fmt.Sprintf("unknown method %q: did you mean %s?", e.Method, e.Suggest)
	}
	return fmt.Sprintf("unknown method %q: rpc_get_methods lists what the target has", e.Method)
}

// Find returns the method with the given name, which may be deprecated, in release r. The error is
// an *UnknownMethodError, which contains advice.
func (d *Document) Find(name string, r Release) (*Method, error) {
	m, ok := d.byName[name]
	if !ok {
		m, ok = d.byAlias[name]
	}
	if !ok {
		return nil, &UnknownMethodError{Method: name, Suggest: d.Suggest(name)}
	}
	if !m.Has(r) {
		return nil, &UnknownMethodError{Method: name, Release: r, Window: m.Window, Instead: m.Instead}
	}
	return m, nil
}

// ValidateParams checks that release r of SPDK accepts the parameters of a call. If there are no
// parameters, params must be nil or an empty object, as returned by Bare. The error is an
// *UnknownMethodError or Violations.
func (d *Document) ValidateParams(method string, params map[string]any, r Release) error {
	m, err := d.Find(method, r)
	if err != nil {
		return err
	}
	bare := m.checkBare(params)
	if params == nil {
		params = map[string]any{}
	}
	violations, err := d.checkParams(m, params, r)
	if err != nil {
		return err
	}
	for i, v := range violations {
		if v.Message == unknownMember {
			violations[i].Message = m.unknown(v.Pointer, r)
		}
	}
	if violations = append(violations, m.checkGroups(params, r)...); len(violations) == 0 {
		violations = bare // an error about a missing parameter is more helpful
	}
	if len(violations) > 0 {
		return violations
	}
	return nil
}

// checkParams checks params against their schema. It tries the acceptor first, and uses the
// validator if the acceptor does not accept them.
func (d *Document) checkParams(m *Method, params map[string]any, r Release) (Violations, error) {
	c, err := d.compilerFor(r)
	if err != nil {
		return nil, err
	}
	if a := c.acceptor(m.Name); a != nil && a.accepts(params) {
		return nil, nil
	}
	s, err := c.compiled(r, "params", m.Name)
	if err != nil {
		return nil, err
	}
	return check(s, params)
}

// ValidateResult checks a method's result. Members that the schema does not describe are
// violations, so that tests detect members that are missing from the schema.
func (d *Document) ValidateResult(method string, result any, r Release) error {
	m, err := d.Find(method, r)
	if err != nil {
		return err
	}
	c, err := d.compilerFor(r)
	if err != nil {
		return err
	}
	s, err := c.compiled(r, "results", m.Name)
	if err != nil {
		return err
	}
	violations, err := check(s, result)
	if err == nil && len(violations) > 0 {
		err = violations
	}
	return err
}

// checkGroups checks that exactly one, or at least one, of each group of parameters is given.
func (m *Method) checkGroups(params map[string]any, r Release) (found Violations) {
	given := func(group []string) (names []string) {
		for _, name := range group {
			if _, ok := params[name]; ok {
				names = append(names, name)
			}
		}
		return names
	}
	known := func(group []string) []string {
		return slices.DeleteFunc(slices.Clone(group), func(name string) bool {
			p := m.Param(name)
			return p == nil || !p.Schema.Has(r)
		})
	}
	exactlyOne := m.OneOf
	for _, p := range m.Params {
		if old := m.forerunnerAt(p, r); old != nil && p.Required && r.Known() {
			exactlyOne = append(slices.Clone(exactlyOne), []string{p.Name, old.Name})
		}
	}
	for _, group := range exactlyOne {
		if group = known(group); len(group) > 0 && len(given(group)) != 1 {
			found = append(found, Violation{Message: fmt.Sprintf("give exactly one of %s", strings.Join(group, ", "))})
		}
	}
	for _, group := range m.AnyOf {
		if group = known(group); len(group) > 0 && len(given(group)) == 0 {
			found = append(found, Violation{Message: fmt.Sprintf("give at least one of %s", strings.Join(group, ", "))})
		}
	}
	return found
}

// unknown returns advice on a parameter that is not in the schema.
func (m *Method) unknown(pointer string, r Release) string {
	name := strings.TrimPrefix(pointer, "/")
	if p, path := m.memberAt(pointer); p != nil && !p.Has(r) {
		text := fmt.Sprintf("%s has this parameter in %s, but the target runs %s", m.Name, p.Window, r)
		if next := m.successor(path, p.Name); next != nil && next.Has(r) {
			return text + ": " + next.Replaces.inWords(next.Name)
		}
		if p.Instead != "" && p.Until.Before(r) {
			return text + ": " + p.Instead
		}
		return text
	}
	var names []string
	for _, p := range m.Params {
		if p.Schema.Has(r) {
			names = append(names, p.Name)
		}
	}
	if strings.Contains(name, "/") || len(names) == 0 {
		return unknownMember
	}
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf("%s has no such parameter: did you mean %s?", m.Name, near)
	}
	return fmt.Sprintf("%s has no such parameter: it takes %s", m.Name, strings.Join(names, ", "))
}

// memberAt returns the parameter or member at a pointer, and its path. It returns nil if no such
// member exists.
func (m *Method) memberAt(pointer string) (p *Property, path []string) {
	names := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	first := m.Param(names[0])
	if first == nil {
		return nil, nil
	}
	p = &Property{first.Name, first.Schema}
	for _, name := range names[1:] {
		s := m.doc.Resolve(p.Schema)
		if s == nil || s.Properties.Get(name) == nil {
			return nil, nil
		}
		p = &Property{name, s.Properties.Get(name)}
	}
	return p, names[:len(names)-1]
}

const unknownMember = "no such member is known here"

func check(s *jsonschema.Schema, v any) (Violations, error) {
	err := s.Validate(v)
	if err == nil {
		return nil, nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil, err
	}
	found := map[Violation]bool{}
	collect(invalid, found)
	return slices.SortedFunc(maps.Keys(found), func(a, b Violation) int {
		return strings.Compare(a.Pointer+a.Message, b.Pointer+b.Message)
	}), nil
}

// collect gathers the leaves of a validation error, which contain the reasons.
func collect(e *jsonschema.ValidationError, found map[Violation]bool) {
	at := pointer(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			found[Violation{at + "/" + name, unknownMember}] = true
		}
	case *kind.Required:
		for _, name := range k.Missing {
			found[Violation{at + "/" + name, "is required"}] = true
		}
	case *kind.OneOf, *kind.AnyOf:
		if len(e.Causes) > 0 {
			// The member's old name is also permitted; see view.schema.
			if either, ok := e.Causes[0].ErrorKind.(*kind.Required); ok {
				found[Violation{at + "/" + either.Missing[0], "is required"}] = true
				return
			}
		}
		// The variants' messages contradict each other.
		found[Violation{at, "fits none of the forms that are allowed here" + formsOf(e)}] = true
	default:
		if len(e.Causes) == 0 {
			found[Violation{at, say(e.ErrorKind)}] = true
		}
		for _, cause := range e.Causes {
			collect(cause, found)
		}
	}
}

// formsOf lists the types that the variants of a union expect, if the value's type is wrong.
func formsOf(e *jsonschema.ValidationError) string {
	var want []string
	for _, cause := range e.Causes {
		for cause != nil && len(cause.Causes) == 1 {
			cause = cause.Causes[0]
		}
		if t, ok := cause.ErrorKind.(*kind.Type); ok {
			want = append(want, t.Want...)
		}
	}
	if len(want) == 0 {
		return ""
	}
	return ": " + strings.Join(want, " or ")
}

func say(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		want := make([]string, len(k.Want))
		for i, v := range k.Want {
			want[i] = fmt.Sprint(v)
		}
		return "must be one of " + strings.Join(want, ", ")
	case *kind.Const:
		return fmt.Sprintf("must be %v", k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.MultipleOf:
		return "must be a multiple of " + k.Want.RatString()
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", k.Want)
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.FalseSchema:
		return unknownMember
	default:
		return "breaks the rule " + strings.Join(k.KeywordPath(), "/")
	}
}

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return b.String()
}
