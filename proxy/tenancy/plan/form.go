package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A Form describes the values that the schema permits in one position, in a representation that is
// fast to use during calls. It combines all nodes that may apply to a value in that position.
type Form struct {
	Fits      [jsonwalk.Types]bool
	Kinds     [jsonwalk.Types][]string // kinds of objects that a value of each type may name
	Sensitive bool
	Opens     []Opening
	Allocates []*rpcschema.Allocates
	Free      bool // may be any string
	UUID      bool // may be a UUID
	Emptiable bool // may be an empty string

	Identity     string // the member that names the object itself; "" if there is none
	IdentityKind string
	Members      []Member       // in the schema's order, which is usually that of SPDK's responses
	byName       map[string]int // index in Members
	others       *Form          // form of members that the schema does not name
	Items        *Form
}

// An Opening describes the access that some values of a parameter give to clients other than the
// named hosts (x-spdk-opens).
type Opening struct {
	*rpcschema.Opens
	ByDefault bool // the access is given even if the parameter is absent
}

// A Member is an object member named in the schema.
type Member struct {
	Name string
	*Form
}

// forms creates each Form only once, because schemas may be recursive.
type forms struct {
	shapes *Shapes
	made   map[string]*Form
}

// samples contains one value of each type, in the order of jsonwalk.Type.
var samples = [jsonwalk.Types]any{nil, false, 0, "", []any{}, map[string]any{}}

// TypeOf returns the type of a decoded value.
func TypeOf(v any) jsonwalk.Type {
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

func (m *forms) of(list []Node) *Form {
	var key strings.Builder
	for _, n := range list {
		fmt.Fprintf(&key, "%p %s %t %p %p;", n.Schema, n.Kind, n.sensitive, n.opens, n.Allocates)
	}
	if f, done := m.made[key.String()]; done {
		return f
	}
	f := &Form{Sensitive: Sensitive(list), Free: Free(list, ""), Emptiable: Emptiable(list), byName: map[string]int{}}
	m.made[key.String()] = f
	for _, n := range list {
		if n.opens != nil {
			f.Opens = append(f.Opens, *n.opens)
		}
		if n.Allocates.Bounded() {
			f.Allocates = append(f.Allocates, n.Allocates)
		}
	}
	for t, sample := range samples {
		f.Fits[t] = slices.ContainsFunc(list, func(n Node) bool { return n.Fits(sample) })
		f.Kinds[t] = KindsOf(list, sample)
	}
	f.UUID = slices.ContainsFunc(list, func(n Node) bool { return n.Format == "uuid" })
	f.Identity, f.IdentityKind = m.shapes.Identity(list)
	for _, n := range list {
		for _, p := range n.Properties {
			if _, known := f.byName[p.Name]; !known {
				below, _ := m.shapes.Member(list, p.Name)
				f.byName[p.Name] = len(f.Members)
				f.Members = append(f.Members, Member{p.Name, m.of(below)})
			}
		}
	}
	f.others, f.Items = Unfit, Unfit
	if others, _ := m.shapes.Member(list, ""); len(others) > 0 {
		f.others = m.of(others)
	}
	if items := m.shapes.Items(list); len(items) > 0 {
		f.Items = m.of(items)
	}
	return f
}

// Unfit is the Form of values that the schema does not describe. No value fits it.
var Unfit = &Form{}

// Member returns the form of an object's member, and whether the schema names the member.
func (f *Form) Member(name string) (below *Form, named bool) {
	after := 0
	return f.MemberAfter(name, &after)
}

// MemberAfter is like Member, but faster for callers that look up members in order. after is the
// index of the member that probably comes next.
func (f *Form) MemberAfter(name string, after *int) (below *Form, named bool) {
	i := *after
	if i >= len(f.Members) || f.Members[i].Name != name {
		if i, named = f.byName[name]; !named {
			return f.others, false
		}
	}
	*after = i + 1
	return f.Members[i].Form, true
}

func Sensitive(list []Node) bool {
	return slices.ContainsFunc(list, func(n Node) bool { return n.sensitive })
}

// Emptiable reports whether the schema permits an empty string.
func Emptiable(list []Node) bool {
	return slices.ContainsFunc(list, func(n Node) bool {
		return n.Fits("") && n.Format == "" && n.Pattern == "" && n.MinLength == 0 && len(n.Enum) == 0
	})
}
