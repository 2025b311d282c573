package tenancy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A form is what the schema says of a value in one place, made ready for calls:
// the nodes that the value may have there, as one.
type form struct {
	fits      [jsonwalk.Types]bool
	kinds     [jsonwalk.Types][]string // of resource that such a value may name
	sensitive bool
	opens     []opening
	free      bool // may be any text
	uuid      bool // may be a text that is a UUID
	emptiable bool // may be an empty text

	identity     string // member that names the object itself; "": none does
	identityKind string
	members      []member       // in the schema's order, which is mostly SPDK's
	byName       map[string]int // index in members
	others       *form          // members that have no name in the schema
	items        *form
}

// An opening is what some values of a parameter open beyond the hosts that are
// named (x-spdk-opens).
type opening struct {
	*rpcschema.Opens
	byDefault bool // when the parameter is left out, too
}

// A member is one of an object's that the schema describes.
type member struct {
	name string
	*form
}

// forms makes forms, each once: a schema may hold itself.
type forms struct {
	tenancy *Tenancy
	made    map[string]*form
}

// samples are one value of each type, in jsonwalk.Type's order.
var samples = [jsonwalk.Types]any{nil, false, 0, "", []any{}, map[string]any{}}

// typeOf is the type of a decoded value.
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
		fmt.Fprintf(&key, "%p %s %t %p;", n.Schema, n.kind, n.sensitive, n.opens)
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

// unfit is the form of what is not described: no value has it.
var unfit = &form{}

// member is the form of an object's member, and whether it is described by its name.
func (f *form) member(name string) (below *form, named bool) {
	after := 0
	return f.memberAfter(name, &after)
}

// memberAfter is member for whoever takes them one after the other: after is
// where the next one probably stands in the schema.
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

// emptiable texts may be empty by the schema.
func emptiable(list []node) bool {
	return slices.ContainsFunc(list, func(n node) bool {
		return n.fits("") && n.Format == "" && n.Pattern == "" && n.MinLength == 0 && len(n.Enum) == 0
	})
}
