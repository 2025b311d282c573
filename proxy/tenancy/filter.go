package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// filter leaves of a result what is theirs, as SPDK wrote it and in its order.
func (g *Grant) filter(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	if g.plan.open || g.owned && g.plan.raw {
		return result, nil
	}
	whole := string(result)
	if err := g.foresee(ctx, whole); err != nil {
		return nil, err
	}
	for {
		f := &filter{ctx: ctx, grant: g, jsonText: jsonText{s: whole}}
		seen := f.root(g.plan.result)
		switch {
		case f.err != nil:
			return nil, f.err
		case f.bad:
			return nil, &unreadableError{g.method.Name, errNoJSON}
		case len(g.sight.unknown) > 0: // now they are all asked about at once, and it is gone through again
			if err := g.sight.resolve(ctx); err != nil {
				return nil, err
			}
		case !seen:
			return nil, g.scope.refuse("%s was executed, and its result names what is not this tenant's", g.method.Name)
		default:
			return f.kept(result), nil
		}
	}
}

// foresee learns from the result itself what would otherwise take questions.
func (g *Grant) foresee(ctx context.Context, result string) (err error) {
	g.sight.filtering, g.sight.began = true, now()
	switch g.method.Name {
	case "bdev_get_bdevs":
		g.sight.listed = g.anchors == 0
		err = g.sight.learn(ctx, result)
	case "bdev_lvol_get_lvols":
		err = g.sight.learnVolumes(ctx, result)
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
	jsonText
	ctx   context.Context
	grant *Grant
	err   error

	out  []byte // what was kept of the text up to done
	done int
}

// cut leaves out what stands between two places.
func (f *filter) cut(from, to int) {
	f.out = append(f.out, f.s[f.done:from]...)
	f.done = to
}

// kept is what is left of the result.
func (f *filter) kept(result json.RawMessage) json.RawMessage {
	if f.done == 0 {
		return result
	}
	return append(f.out, f.s[f.done:]...)
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
	i, owned := f.space(0), f.grant.owned
	if w.sensitive {
		return false
	}
	switch t := f.typeAt(i); t {
	case isObject:
		switch f.identified(w, i) {
		case another:
			return false
		case theirs:
			owned = true
		}
		f.members(w, i, owned, true)
	case isArray:
		f.items(w, i, owned)
	default:
		if owned && f.grant.method.Mutates && slices.ContainsFunc(w.kinds[t], isHeld) {
			_, sound, _ := f.textAt(i)
			return sound
		}
		v, _ := f.value(w, i, owned || t != isString)
		return v != hide
	}
	return true
}

// value decides on a value below the root; inside, whether it surrounds what is theirs.
func (f *filter) value(w *form, i int, owned bool) (v verdict, inside bool) {
	t := f.typeAt(i)
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
	case isObject:
		return enter, owned || f.identified(w, i) == theirs
	case isArray:
		return enter, owned
	case isString:
		if _, sound, _ := f.textAt(i); !sound {
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
	if f.typeAt(i) != isObject || !w.fits[isObject] || len(w.kinds[isObject]) > 0 {
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
	m := f.walk(i)
	c := content{filter: f, end: m.end}
	after := 0
	for m.next() {
		below, named := unfit, false
		if m.sound {
			below, named = w.memberAfter(m.name, &after)
		}
		t := f.typeAt(m.value)
		var v verdict
		var inside bool
		switch {
		case named:
			v, inside = f.value(below, m.value, owned || root && t < isString)
		case owned: // an entry of a map: its name may be an object's
			v, inside = f.item(below, m.value, owned)
		}
		switch {
		case v == hide && named && t == isString && below.emptiable:
			c.keep(m.start)
			m.end = f.skip(m.value)
			f.cut(m.value, m.end)
			f.out = append(f.out, `""`...)
			c.end = m.end
		case v == hide:
			c.gap, m.end = true, f.skip(m.value)
		default:
			c.keep(m.start)
			m.end = f.pass(below, v, m.value, inside)
			c.end = m.end
		}
	}
	c.close(m.start)
	return m.end
}

// items filters an array's items.
func (f *filter) items(w *form, i int, owned bool) (end int) {
	m := f.walk(i)
	c := content{filter: f, end: m.end}
	for m.next() {
		v, inside := f.item(w.items, m.value, owned)
		if v == hide {
			c.gap, m.end = true, f.skip(m.value)
			continue
		}
		c.keep(m.start)
		m.end = f.pass(w.items, v, m.value, inside)
		c.end = m.end
	}
	c.close(m.start)
	return m.end
}

// pass goes on behind a value that may be seen, or that is filtered itself.
func (f *filter) pass(w *form, v verdict, i int, owned bool) (end int) {
	switch {
	case v == show:
		return f.skip(i)
	case f.typeAt(i) == isObject:
		return f.members(w, i, owned, false)
	default:
		return f.items(w, i, owned)
	}
}

// A content is what is kept of an object or array: what stands between two
// members that are kept goes with those that are not.
type content struct {
	*filter
	end  int  // of the last that was kept, or of the opening bracket
	some bool // were kept
	gap  bool // some were left out since
}

// keep keeps the member that begins at i.
func (c *content) keep(i int) {
	if c.gap {
		c.cut(c.end, i)
		if c.some {
			c.out = append(c.out, ',')
		}
	}
	c.some, c.gap = true, false
}

// close closes the whole at its bracket.
func (c *content) close(i int) {
	if c.gap {
		c.cut(c.end, i)
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
	for m := f.walk(i); m.next(); m.end = f.skip(m.value) {
		switch {
		case m.name != w.identity:
		case f.typeAt(m.value) == isNull:
			empty = true
		case says != another && f.owns(w.identityKind, m.value):
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
	name, sound, _ := f.textAt(i)
	switch {
	case !sound:
		return false
	case isGranted(kind):
		return f.grant.scope.ownsNamed(kind, name)
	case !isHeld(kind):
		return false
	}
	own, err := f.grant.sight.owns(f.ctx, kind, name)
	f.err = err
	return own && err == nil
}

// ownsAddress decides on an address, which is an object.
func (f *filter) ownsAddress(i int) bool {
	if f.typeAt(i) != isObject {
		return false
	}
	var a spokenAddress
	for m := f.walk(i); m.next(); {
		var value string
		var sound bool
		if value, sound, m.end = f.textAt(m.value); !sound || !a.take(m.name, value) {
			return false
		}
	}
	return f.grant.scope.ownsSpoken(a)
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
