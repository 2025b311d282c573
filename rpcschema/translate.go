package rpcschema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Translation records a method or parameter that was rewritten for the target's release. Members
// of objects are named by their path, separated by dots.
type Translation struct{ From, To string }

// LeftOut is the value of To for a parameter that was omitted because its value is implied in later
// releases.
const LeftOut = "nothing"

// Translate adapts params to release r without loss:
//   - A call without parameters gets the form that SPDK accepts (x-spdk-params).
//   - A new name that the release does not support yet is replaced with the old one
//     (x-spdk-replaces). An old name that the release no longer supports is replaced with the new
//     one. A size in bytes is rounded up to MiB.
//   - A removed parameter is omitted if its value describes the behavior of later releases
//     (x-spdk-drop-if).
//   - Values that earlier releases accepted in any letter case get their current spelling.
//
// Translate does not modify params. Parameters without an equivalent remain unchanged; validation
// then refuses them.
func (m *Method) Translate(params map[string]any, r Release) (map[string]any, []Translation, error) {
	params = m.Bare(params)
	if !r.Known() {
		return params, nil, nil
	}
	var done []Translation
	for i := range m.changes {
		c := &m.changes[i]
		object := c.object(params)
		if object == nil {
			continue
		}
		edit, t, err := c.apply(object, r)
		if err != nil {
			return nil, nil, err
		}
		if edit == nil {
			continue
		}
		if done == nil {
			params = maps.Clone(params)
		}
		edit(c.copied(params))
		done = append(done, t)
	}
	return params, done, nil
}

// object returns the object that contains the changed member, or nil if the call does not contain
// such an object.
func (c *change) object(params map[string]any) map[string]any {
	for _, name := range c.path {
		params, _ = params[name].(map[string]any)
	}
	return params
}

// copied returns a copy of the object that contains the changed member, and copies the objects on
// the path to it.
func (c *change) copied(params map[string]any) map[string]any {
	for _, name := range c.path {
		next := maps.Clone(params[name].(map[string]any))
		params[name] = next
		params = next
	}
	return params
}

// apply returns a function that edits the object, or nil if nothing changes.
func (c *change) apply(object map[string]any, r Release) (edit func(map[string]any), t Translation, err error) {
	switch {
	case c.any.Schema != nil:
		edit, t = c.respell(object)
	case c.new.Schema != nil:
		return c.rename(object, r)
	default:
		edit, t = c.drop(object, r)
	}
	return edit, t, nil
}

func (c *change) rename(object map[string]any, r Release) (edit func(map[string]any), t Translation, err error) {
	rep := c.new.Replaces
	knowsOld, knowsNew := c.old.Has(r), c.new.Has(r)
	from, to, convert := c.old, c.new, rep.modern
	switch {
	case knowsNew && !knowsOld:
	case knowsOld && !knowsNew && rep.BothWays():
		from, to, convert = c.new, c.old, rep.former
	default:
		return nil, t, nil
	}
	value, given := object[from.Name]
	if !given {
		return nil, t, nil
	}
	if _, both := object[to.Name]; both {
		return nil, t, Violations{{Pointer: c.pointer(from.Name), Message: fmt.Sprintf("%s and %s mean the same: give only %s", from.Name, to.Name, to.Name)}}
	}
	if value, err = convert(value); err != nil {
		return nil, t, Violations{{Pointer: c.pointer(from.Name), Message: err.Error()}}
	}
	return func(object map[string]any) {
		delete(object, from.Name)
		object[to.Name] = value
	}, Translation{From: c.dotted(from.Name), To: c.dotted(to.Name)}, nil
}

func (c *change) drop(object map[string]any, r Release) (edit func(map[string]any), t Translation) {
	value, given := object[c.old.Name]
	if !given || c.old.Has(r) || !slices.ContainsFunc(c.old.DropIf, func(v any) bool { return v == value }) {
		return nil, t
	}
	return func(object map[string]any) { delete(object, c.old.Name) }, Translation{From: c.dotted(c.old.Name), To: LeftOut}
}

func (c *change) respell(object map[string]any) (edit func(map[string]any), t Translation) {
	given, ok := object[c.any.Name].(string)
	if !ok || slices.Contains(c.texts, given) {
		return nil, t
	}
	i := slices.IndexFunc(c.texts, func(text string) bool { return strings.EqualFold(text, given) })
	if i < 0 {
		return nil, t
	}
	return func(object map[string]any) { object[c.any.Name] = c.texts[i] },
		Translation{From: c.dotted(c.any.Name) + " in another case", To: c.dotted(c.any.Name)}
}

// Varies reports whether m's parameters, or their members, differ between releases.
func (m *Method) Varies() bool { return m.varies }

// variesIn reports whether releases accept different values for a schema. within lists the
// enclosing schemas, which may be recursive.
func (d *Document) variesIn(s *Schema, within []*Schema) bool {
	if s == nil || slices.Contains(within, s) {
		return false
	}
	if s.Window != (Window{}) || len(s.EnumSince) > 0 || s.RequiredUntil.Known() {
		return true
	}
	within = append(within, s)
	inner := append(slices.Concat(s.OneOf, s.AnyOf), s.Items, s.Additional.Schema, d.schemas[s.RefName()])
	for _, p := range s.Properties {
		inner = append(inner, p.Schema)
	}
	return slices.ContainsFunc(inner, func(in *Schema) bool { return d.variesIn(in, within) })
}

// Knows returns an error if release r does not support a given parameter.
func (m *Method) Knows(params map[string]any, r Release) error {
	var found Violations
	for name := range params {
		if p := m.Param(name); p != nil && !p.Schema.Has(r) {
			found = append(found, Violation{Pointer: "/" + name, Message: m.unknown("/"+name, r)})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}
