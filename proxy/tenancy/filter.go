package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// filter leaves of a result what is theirs, as SPDK wrote it and in its order.
func (g *Grant) filter(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	if g.plan.open || g.owned && g.plan.raw {
		return result, nil
	}
	whole := string(result)
	if err := g.learnFromResult(ctx, whole); err != nil {
		return nil, err
	}
	for {
		f := &filter{ctx: ctx, grant: g, Edit: jsonwalk.NewEdit(whole)}
		seen := f.root(g.plan.result)
		switch {
		case f.err != nil:
			return nil, f.err
		case f.Bad:
			return nil, &unreadableError{g.method.Name, errNoJSON}
		case len(g.ownership.unknown) > 0: // now they are all asked about at once, and it is gone through again
			if err := g.ownership.resolve(ctx); err != nil {
				return nil, err
			}
		case !seen:
			return nil, g.scope.refuse("%s was executed, and its result names what is not this tenant's", g.method.Name)
		default:
			return f.Kept(result), nil
		}
	}
}

// learnFromResult learns from the result itself what would otherwise take questions.
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
		return nil // it teaches nothing, and is left out
	}
	return err
}

// A filter goes through one result. Owned, below, means that what surrounds a
// value is theirs: a value that names nothing is then theirs as well. What is
// decided on a value is decided before it is gone into.
type filter struct {
	jsonwalk.Edit
	ctx   context.Context
	grant *Grant
	err   error
}

// A verdict says what becomes of a value.
type verdict uint8

const (
	hide  verdict = iota // it must not be seen
	show                 // as it is
	enter                // what lies in it is decided on by itself
)

// root filters the whole result, and is false when it must not be seen. What a
// call that changes something names itself, it has made of what is theirs.
func (f *filter) root(w *form) bool {
	i, owned := f.Space(0), f.grant.owned
	if w.sensitive {
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
		if owned && f.grant.method.Mutates && slices.ContainsFunc(w.kinds[t], isHeld) {
			_, sound, _ := f.TextAt(i)
			return sound
		}
		v, _ := f.value(w, i, owned || t != jsonwalk.String)
		return v != hide
	}
	return true
}

// value decides on a value below the root; inside, whether it surrounds what is theirs.
func (f *filter) value(w *form, i int, owned bool) (v verdict, inside bool) {
	t := f.TypeAt(i)
	if w.sensitive || !w.fits[t] {
		return hide, false // a secret, or not what the schema describes
	}
	if kinds := w.kinds[t]; len(kinds) > 0 {
		for _, kind := range kinds {
			if isInner(kind) && !owned || !isInner(kind) && !f.owns(kind, i) {
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

// item decides on one of several: what names itself must be theirs, and what
// does not must lie in what is.
func (f *filter) item(w *form, i int, owned bool) (v verdict, inside bool) {
	if f.TypeAt(i) != jsonwalk.Object || !w.fits[jsonwalk.Object] || len(w.kinds[jsonwalk.Object]) > 0 {
		return f.value(w, i, owned)
	}
	if w.sensitive {
		return hide, false
	}
	if w.identityKind != "" {
		owned = f.identified(w, i) == theirs
	}
	if !owned {
		return hide, false
	}
	return enter, true
}

// members filters an object's members. One that must not be seen is left out,
// or empty where clients will look for it. Numbers and switches at the root are
// nobody's.
func (f *filter) members(w *form, i int, owned, root bool) (end int) {
	m := f.Walk(i)
	c := f.Content(m.End)
	after := 0
	for m.Next() {
		below, named := unfit, false
		if m.Sound {
			below, named = w.memberAfter(m.Name, &after)
		}
		t := f.TypeAt(m.Value)
		var v verdict
		var inside bool
		switch {
		case named:
			v, inside = f.value(below, m.Value, owned || root && t < jsonwalk.String)
		case owned: // an entry of a map: its name may be an object's
			v, inside = f.item(below, m.Value, owned)
		}
		switch {
		case v == hide && named && t == jsonwalk.String && below.emptiable:
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
func (f *filter) items(w *form, i int, owned bool) (end int) {
	m := f.Walk(i)
	c := f.Content(m.End)
	for m.Next() {
		v, inside := f.item(w.items, m.Value, owned)
		if v == hide {
			c.Gap, m.End = true, f.Skip(m.Value)
			continue
		}
		c.Keep(m.Start)
		m.End = f.pass(w.items, v, m.Value, inside)
		c.End = m.End
	}
	c.Close(m.Start)
	return m.End
}

// pass goes on behind a value that may be seen, or that is filtered itself.
func (f *filter) pass(w *form, v verdict, i int, owned bool) (end int) {
	switch {
	case v == show:
		return f.Skip(i)
	case f.TypeAt(i) == jsonwalk.Object:
		return f.members(w, i, owned, false)
	default:
		return f.items(w, i, owned)
	}
}

// What an object says of itself.
type self uint8

const (
	unnamed self = iota
	theirs
	another // not theirs, or it cannot be told
)

// identified reads whose an object is by the member that names itself. Should
// that stand there several times, all must say so.
func (f *filter) identified(w *form, i int) self {
	if w.identityKind == "" {
		return unnamed
	}
	says, empty := unnamed, false
	for m := f.Walk(i); m.Next(); m.End = f.Skip(m.Value) {
		switch {
		case m.Name != w.identity:
		case f.TypeAt(m.Value) == jsonwalk.Null:
			empty = true
		case says != another && f.owns(w.identityKind, m.Value):
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

// owns decides on a value that names something.
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
	case isGranted(kind):
		return f.grant.scope.ownsNamed(kind, name)
	case !isHeld(kind):
		return false
	}
	own, err := f.grant.ownership.owns(f.ctx, kind, name)
	f.err = err
	return own && err == nil
}

// ownsAddress decides on an address, which is an object.
func (f *filter) ownsAddress(i int) bool {
	if f.TypeAt(i) != jsonwalk.Object {
		return false
	}
	var a addressParts
	for m := f.Walk(i); m.Next(); {
		var value string
		var sound bool
		if value, sound, m.End = f.TextAt(m.Value); !sound || !a.take(m.Name, value) {
			return false
		}
	}
	return f.grant.scope.ownsAddressParts(a)
}

// restored is SPDK's error in the client's words.
func (g *Grant) restored(err error) error {
	var called *spdkrpc.Error
	if len(g.hidden) == 0 || !errors.As(err, &called) {
		return err
	}
	copied := *called
	copied.Message = g.restore(called.Message)
	return &copied
}
