package drift

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Difference is one place where the schema and SPDK disagree.
type Difference struct {
	Method string
	Param  string // "" for the method itself; members are dotted
	What   string // missing, extra, type, required, enum (of ours, against SPDK's)
	Detail string
	Why    string // from known.yaml; "" for what nobody has explained
}

func (d Difference) String() string {
	where := d.Method
	if d.Param != "" {
		where += " " + d.Param
	}
	s := fmt.Sprintf("%s: %s: %s", where, d.What, d.Detail)
	if d.Why != "" {
		s += " (known: " + d.Why + ")"
	}
	return s
}

// Live compares the methods that a target of release r lists with the schema.
// A method that the target lacks may just not be built in, or wait for the
// other state; so these are told apart.
func Live(doc *rpcschema.Document, names []string, r rpcschema.Release) (unknown, absent []Difference) {
	listed := map[string]bool{}
	for _, name := range names {
		m, err := doc.Find(name, r)
		if err != nil {
			unknown = append(unknown, Difference{Method: name, What: "missing", Detail: err.Error()})
			continue
		}
		listed[m.Name] = true
	}
	for _, m := range doc.Methods() {
		if m.Has(r) && !listed[m.Name] {
			absent = append(absent, Difference{Method: m.Name, What: "extra", Detail: "the target does not list it: not built in, or not in this state"})
		}
	}
	return explain(unknown, r), explain(absent, r)
}

// Against compares the schema at release r with SPDK's own schema file.
func Against(doc *rpcschema.Document, source *Source, r rpcschema.Release) []Difference {
	c := comparison{doc: doc, source: source, release: r}
	seen := map[string]bool{}
	for _, theirs := range source.Methods {
		m, ok := doc.Method(theirs.Name)
		if !ok || !m.Has(r) {
			c.add(theirs.Name, "", "missing", "SPDK has this method")
			continue
		}
		seen[m.Name] = true
		var ours []member
		for _, p := range m.Params {
			ours = append(ours, member{p.Name, p.Required && !standsFor(m, p, r), p.Schema})
		}
		c.members(m.Name, "", ours, theirs.Params)
	}
	for _, m := range doc.Methods() {
		if m.Has(r) && !seen[m.Name] {
			c.add(m.Name, "", "extra", "SPDK's schema does not have this method")
		}
	}
	return explain(c.found, r)
}

// standsFor: while a release has both an old parameter and its successor,
// neither is required by itself.
func standsFor(m *rpcschema.Method, p *rpcschema.Param, r rpcschema.Release) bool {
	if p.Schema.Replaces == nil {
		return false
	}
	old := m.Param(p.Schema.Replaces.Name)
	return old != nil && old.Schema.Has(r)
}

type comparison struct {
	doc     *rpcschema.Document
	source  *Source
	release rpcschema.Release
	found   []Difference
}

type member struct {
	name     string
	required bool
	schema   *rpcschema.Schema
}

func (c *comparison) add(method, param, what, format string, args ...any) {
	c.found = append(c.found, Difference{Method: method, Param: param, What: what, Detail: fmt.Sprintf(format, args...)})
}

func (c *comparison) members(method, prefix string, ours []member, theirs []SourceParam) {
	seen := map[string]bool{}
	for _, t := range theirs {
		name := prefix + t.Name
		i := slices.IndexFunc(ours, func(m member) bool { return m.name == t.Name && m.schema.Has(c.release) })
		if i < 0 {
			c.add(method, name, "missing", "SPDK has this parameter (%s)", t.Type)
			continue
		}
		seen[t.Name] = true
		if ours[i].required != t.Required {
			c.add(method, name, "required", "ours %t, SPDK's schema %t", ours[i].required, t.Required)
		}
		c.value(method, name, ours[i].schema, t)
	}
	for _, m := range ours {
		if m.schema.Has(c.release) && !seen[m.name] {
			c.add(method, prefix+m.name, "extra", "SPDK's schema does not have this parameter")
		}
	}
}

func (c *comparison) value(method, name string, ours *rpcschema.Schema, t SourceParam) {
	ours = c.doc.Resolve(ours)
	want := theirType(t.Type)
	if t.Type == "enum" {
		c.enum(method, name, ours, c.source.enum(t.Class))
		return
	}
	if got := ourTypes(c.doc, ours); len(got) > 0 && !slices.ContainsFunc(got, func(g string) bool { return g == want || g == t.Type }) {
		c.add(method, name, "type", "ours %s, SPDK's schema %s", strings.Join(got, " or "), t.Type)
		return
	}
	switch {
	case want == "object" && t.Class != "":
		c.members(method, name+".", membersOf(ours), c.source.object(t.Class))
	case want == "array" && t.Class != "":
		if item, ok := c.source.array(t.Class); ok && ours.Items != nil {
			c.value(method, name+"[]", ours.Items, item)
		}
	}
}

func (c *comparison) enum(method, name string, ours *rpcschema.Schema, want []string) {
	var got []string
	for _, s := range append([]*rpcschema.Schema{ours}, slices.Concat(ours.OneOf, ours.AnyOf)...) {
		for _, v := range c.doc.Resolve(s).Enum {
			got = append(got, fmt.Sprint(v))
		}
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		c.add(method, name, "enum", "ours %s, SPDK's schema %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func membersOf(s *rpcschema.Schema) (list []member) {
	for _, p := range s.Properties {
		list = append(list, member{p.Name, slices.Contains(s.Required, p.Name), p.Schema})
	}
	return list
}

// theirType maps the words of SPDK's schemas, which differ between releases,
// to JSON's types; sized integers stay.
func theirType(t string) string {
	switch t {
	case "bool", "Boolean":
		return "boolean"
	case "number", "int":
		return "integer"
	case "uuid", "enum":
		return "string"
	case "list", "bitmask":
		return "array"
	case "string map":
		return "object"
	}
	return t
}

// ourTypes are the JSON types that a value may have, and the sized integers.
func ourTypes(doc *rpcschema.Document, s *rpcschema.Schema) (types []string) {
	s = doc.Resolve(s)
	for _, variant := range slices.Concat(s.OneOf, s.AnyOf) {
		types = append(types, ourTypes(doc, variant)...)
	}
	for _, t := range s.Type {
		if t == "number" {
			t = "integer"
		}
		types = append(types, t)
		if t == "integer" && s.Format != "" {
			types = append(types, s.Format)
		}
	}
	return types
}

//go:embed known.yaml
var knownText []byte

// known are the differences that have an explanation.
type known struct {
	Method string            `yaml:"method"`
	Param  string            `yaml:"param"`
	What   string            `yaml:"what"`
	Since  rpcschema.Release `yaml:"since"` // releases that it is about; left out: all
	Until  rpcschema.Release `yaml:"until"`
	Why    string            `yaml:"why"`
}

func loadKnown() ([]known, error) {
	var list []known
	dec := yaml.NewDecoder(strings.NewReader(string(knownText)))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("known.yaml: %w", err)
	}
	return list, nil
}

// explain adds the reasons that known.yaml gives.
func explain(found []Difference, r rpcschema.Release) []Difference {
	list, err := loadKnown()
	if err != nil {
		panic(err) // embedded; a test reads it
	}
	for i, d := range found {
		for _, k := range list {
			w := rpcschema.Window{Since: k.Since, Until: k.Until}
			if k.Method == d.Method && k.Param == d.Param && k.What == d.What && w.Has(r) {
				found[i].Why = k.Why
			}
		}
	}
	return found
}
