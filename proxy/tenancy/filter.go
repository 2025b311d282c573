package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy/addresses"
	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// filter returns the part of a result that belongs to the tenant. Text and order remain SPDK's own.
func (g *Grant) filter(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	if g.plan.Open || g.owned && g.plan.Raw {
		return result, nil
	}
	whole := string(result)
	if err := g.learnFromResult(ctx, whole); err != nil {
		return nil, err
	}
	for {
		f := &filter{ctx: ctx, grant: g, Edit: jsonwalk.NewEdit(whole)}
		seen := f.root(g.plan.Result)
		switch {
		case f.err != nil:
			return nil, f.err
		case f.Bad:
			return nil, &unreadableError{g.method.Name, errNoJSON}
		case len(g.ownership.unknown) > 0: // query all of them at once, then filter again
			if err := g.ownership.resolve(ctx); err != nil {
				return nil, err
			}
		case !seen:
			return nil, g.scope.refuse("%s was executed, but its result names objects that do not belong to this tenant", g.method.Name)
		default:
			return f.Kept(result), nil
		}
	}
}

// learnFromResult learns owners from the result itself, which saves queries.
func (g *Grant) learnFromResult(ctx context.Context, result string) (err error) {
	g.ownership.filtering, g.ownership.began = true, now()
	switch g.method.Name {
	case "bdev_get_bdevs":
		g.ownership.listed = g.namedObjects == 0
		err = g.ownership.learn(ctx, result)
	case "bdev_lvol_get_lvols":
		err = g.ownership.learnVolumes(ctx, result)
	}
	var unreadable *unreadableError
	if errors.As(err, &unreadable) {
		return nil // the value is omitted later
	}
	return err
}

// A filter filters a result. In its methods, owned means that the object that contains a value
// belongs to the tenant. A value that is not a name then also belongs to the tenant; for a name,
// the owner of the named object counts. The filter decides about a value before it decides about
// the value's contents.
type filter struct {
	jsonwalk.Edit
	ctx   context.Context
	grant *Grant
	err   error
}

// A verdict states what happens to a value.
type verdict uint8

const (
	hide  verdict = iota // the value is omitted
	show                 // the value is kept unchanged
	enter                // the value is kept, but its content is filtered
)

// root filters the whole result. It returns false if the tenant must not see any part of the
// result. If the call changed the tenant's objects, a name in its result is the name of an object
// that the call created.
func (f *filter) root(w *plan.Form) bool {
	i, owned := f.Space(0), f.grant.owned
	if w.Sensitive {
		return false
	}
	switch t := f.TypeAt(i); t {
	case jsonwalk.Object:
		switch f.identified(w, i) {
		case another:
			return false
		case theirs:
			owned = true
		}
		f.members(w, i, owned, true)
	case jsonwalk.Array:
		f.items(w, i, owned)
	default:
		if owned && f.grant.method.Mutates && slices.ContainsFunc(w.Kinds[t], plan.IsObject) {
			_, sound, _ := f.TextAt(i)
			return sound
		}
		v, _ := f.value(w, i, owned || t != jsonwalk.String)
		return v != hide
	}
	return true
}

// value returns the verdict on a value below the root. inside is the value of owned for the
// contents of that value.
func (f *filter) value(w *plan.Form, i int, owned bool) (v verdict, inside bool) {
	t := f.TypeAt(i)
	if w.Sensitive || !w.Fits[t] {
		return hide, false // the value is secret, or the schema does not describe it
	}
	if kinds := w.Kinds[t]; len(kinds) > 0 {
		for _, kind := range kinds {
			if plan.IsInner(kind) && !owned || !plan.IsInner(kind) && !f.owns(kind, i) {
				return hide, false
			}
		}
		return show, false
	}
	switch t {
	case jsonwalk.Object:
		return enter, owned || f.identified(w, i) == theirs
	case jsonwalk.Array:
		return enter, owned
	case jsonwalk.String:
		if _, sound, _ := f.TextAt(i); !sound {
			return hide, false
		}
	}
	if owned {
		return show, false
	}
	return hide, false
}

// item returns the verdict on an item of an array or map. If an item contains the name of an
// object, that object must belong to the tenant; any other item must be part of an object that
// belongs to the tenant.
func (f *filter) item(w *plan.Form, i int, owned bool) (v verdict, inside bool) {
	if f.TypeAt(i) != jsonwalk.Object || !w.Fits[jsonwalk.Object] || len(w.Kinds[jsonwalk.Object]) > 0 {
		return f.value(w, i, owned)
	}
	if w.Sensitive {
		return hide, false
	}
	if w.IdentityKind != "" {
		owned = f.identified(w, i) == theirs
	}
	if !owned {
		return hide, false
	}
	return enter, true
}

// members filters an object's members. A hidden member is replaced with an empty string if the
// schema permits it, and otherwise omitted. Numbers and booleans at the root belong to no tenant,
// and are kept.
func (f *filter) members(w *plan.Form, i int, owned, root bool) (end int) {
	m := f.Walk(i)
	c := f.Content(m.End)
	after := 0
	for m.Next() {
		below, named := plan.Unfit, false
		if m.Sound {
			below, named = w.MemberAfter(m.Name, &after)
		}
		t := f.TypeAt(m.Value)
		var v verdict
		var inside bool
		switch {
		case named:
			v, inside = f.value(below, m.Value, owned || root && t < jsonwalk.String)
		case owned: // an entry of a map, whose key may be the name of an object
			v, inside = f.item(below, m.Value, owned)
		}
		switch {
		case v == hide && named && t == jsonwalk.String && below.Emptiable:
			c.Keep(m.Start)
			m.End = f.Skip(m.Value)
			f.Replace(m.Value, m.End, `""`)
			c.End = m.End
		case v == hide:
			c.Gap, m.End = true, f.Skip(m.Value)
		default:
			c.Keep(m.Start)
			m.End = f.pass(below, v, m.Value, inside)
			c.End = m.End
		}
	}
	c.Close(m.Start)
	return m.End
}

// items filters an array's items.
func (f *filter) items(w *plan.Form, i int, owned bool) (end int) {
	m := f.Walk(i)
	c := f.Content(m.End)
	for m.Next() {
		v, inside := f.item(w.Items, m.Value, owned)
		if v == hide {
			c.Gap, m.End = true, f.Skip(m.Value)
			continue
		}
		c.Keep(m.Start)
		m.End = f.pass(w.Items, v, m.Value, inside)
		c.End = m.End
	}
	c.Close(m.Start)
	return m.End
}

// pass leaves the value at i unchanged if the verdict is show, and otherwise filters its contents.
// It returns the end of the value.
func (f *filter) pass(w *plan.Form, v verdict, i int, owned bool) (end int) {
	switch {
	case v == show:
		return f.Skip(i)
	case f.TypeAt(i) == jsonwalk.Object:
		return f.members(w, i, owned, false)
	default:
		return f.items(w, i, owned)
	}
}

// A self states whether an object belongs to the tenant, according to the object's own name.
type self uint8

const (
	unnamed self = iota
	theirs       // belongs to the tenant
	another      // does not belong to the tenant, or the owner is unknown
)

// identified determines the owner of an object from the member that names it. If that member occurs
// several times, all its values must be names that belong to the tenant.
func (f *filter) identified(w *plan.Form, i int) self {
	if w.IdentityKind == "" {
		return unnamed
	}
	says, empty := unnamed, false
	for m := f.Walk(i); m.Next(); m.End = f.Skip(m.Value) {
		switch {
		case m.Name != w.Identity:
		case f.TypeAt(m.Value) == jsonwalk.Null:
			empty = true
		case says != another && f.owns(w.IdentityKind, m.Value):
			says = theirs
		default:
			says = another
		}
	}
	if empty && says == theirs {
		return another
	}
	return says
}

// owns reports whether a value names an object of the tenant.
func (f *filter) owns(kind string, i int) bool {
	if f.err != nil {
		return false
	}
	if kind == "address" {
		return f.ownsAddress(i)
	}
	name, sound, _ := f.TextAt(i)
	switch {
	case !sound:
		return false
	case plan.IsConfigured(kind):
		return f.grant.scope.ownsNamed(kind, name)
	case !plan.IsObject(kind):
		return false
	}
	own, err := f.grant.ownership.owns(f.ctx, kind, name)
	if own && err == nil {
		var written bool
		written, err = f.grant.ownership.written(f.ctx, kind, name)
		own = !written
	}
	f.err = err
	return own && err == nil
}

// ownsAddress reports whether an address, which is a JSON object, belongs to the tenant.
func (f *filter) ownsAddress(i int) bool {
	if f.TypeAt(i) != jsonwalk.Object {
		return false
	}
	var a addresses.Parts
	for m := f.Walk(i); m.Next(); {
		var value string
		var sound bool
		if value, sound, m.End = f.TextAt(m.Value); !sound || !a.Set(m.Name, value) {
			return false
		}
	}
	return a.In(f.grant.scope.addresses)
}

// restored returns SPDK's error with the names that the client wrote.
func (g *Grant) restored(err error) error {
	var called *spdkrpc.Error
	if len(g.hidden) == 0 || !errors.As(err, &called) {
		return err
	}
	copied := *called
	copied.Message = g.restore(called.Message)
	return &copied
}
