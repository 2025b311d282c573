package tenancy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A form is what the schema says about a value in one place, prepared for calls: all nodes that
// the value may have there, combined.
type form struct {
	fits      [jsonwalk.Types]bool
	kinds     [jsonwalk.Types][]string // kinds of objects that such a value may name
	sensitive bool
	opens     []opening
	allocates []*rpcschema.Allocates
	free      bool // may be any string
	uuid      bool // may be a UUID
	emptiable bool // may be an empty string

	identity     string // the member that names the object itself; "": none does
	identityKind string
	members      []member       // in the schema's order, which is mostly the order of SPDK's answers
	byName       map[string]int // index in members
	others       *form          // of members that the schema does not name
	items        *form
}

// An opening is access that some values of a parameter give to others than the named hosts
// (x-spdk-opens).
type opening struct {
	*rpcschema.Opens
	byDefault bool // also if the parameter is absent
}

// A member is an object's member that the schema names.
type member struct {
	name string
	*form
}

// forms makes forms, each once, because schemas may be recursive.
type forms struct {
	tenancy *Tenancy
	made    map[string]*form
}

// samples has one value of each type, in jsonwalk.Type's order.
var samples = [jsonwalk.Types]any{nil, false, 0, "", []any{}, map[string]any{}}

// typeOf returns the type of a decoded value.
func typeOf(v any) jsonwalk.Type {
	switch v.(type) {
	case nil:
		return jsonwalk.Null
	case bool:
		return jsonwalk.Bool
	case string:
		return jsonwalk.String
	case []any:
		return jsonwalk.Array
	case map[string]any:
		return jsonwalk.Object
	}
	return jsonwalk.Number
}

func (m *forms) of(list []node) *form {
	var key strings.Builder
	for _, n := range list {
		fmt.Fprintf(&key, "%p %s %t %p %p;", n.Schema, n.kind, n.sensitive, n.opens, n.allocates)
	}
	if f, done := m.made[key.String()]; done {
		return f
	}
	f := &form{sensitive: sensitive(list), free: free(list, ""), emptiable: emptiable(list), byName: map[string]int{}}
	m.made[key.String()] = f
	for _, n := range list {
		if n.opens != nil {
			f.opens = append(f.opens, *n.opens)
		}
		if n.allocates.Bounded() {
			f.allocates = append(f.allocates, n.allocates)
		}
	}
	for t, sample := range samples {
		f.fits[t] = slices.ContainsFunc(list, func(n node) bool { return n.fits(sample) })
		f.kinds[t] = kindsOf(list, sample)
	}
	f.uuid = slices.ContainsFunc(list, func(n node) bool { return n.Format == "uuid" })
	f.identity, f.identityKind = m.tenancy.identity(list)
	for _, n := range list {
		for _, p := range n.Properties {
			if _, known := f.byName[p.Name]; !known {
				below, _ := m.tenancy.member(list, p.Name)
				f.byName[p.Name] = len(f.members)
				f.members = append(f.members, member{p.Name, m.of(below)})
			}
		}
	}
	f.others, f.items = unfit, unfit
	if others, _ := m.tenancy.member(list, ""); len(others) > 0 {
		f.others = m.of(others)
	}
	if items := m.tenancy.items(list); len(items) > 0 {
		f.items = m.of(items)
	}
	return f
}

// unfit is the form of values that the schema does not describe. No value fits it.
var unfit = &form{}

// member returns the form of an object's member, and whether the schema names the member.
func (f *form) member(name string) (below *form, named bool) {
	after := 0
	return f.memberAfter(name, &after)
}

// memberAfter is member for callers that look up the members in order: after is the index of the
// probable next one.
func (f *form) memberAfter(name string, after *int) (below *form, named bool) {
	i := *after
	if i >= len(f.members) || f.members[i].name != name {
		if i, named = f.byName[name]; !named {
			return f.others, false
		}
	}
	*after = i + 1
	return f.members[i].form, true
}

func sensitive(list []node) bool {
	return slices.ContainsFunc(list, func(n node) bool { return n.sensitive })
}

// emptiable reports whether the schema permits an empty string.
func emptiable(list []node) bool {
	return slices.ContainsFunc(list, func(n node) bool {
		return n.fits("") && n.Format == "" && n.Pattern == "" && n.MinLength == 0 && len(n.Enum) == 0
	})
}
