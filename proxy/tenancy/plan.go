package tenancy

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A plan is how a method is treated for tenants, derived from the schema alone.
type plan struct {
	refusal string // why tenants may not call it; "": they may
	open    bool   // it names nothing and changes nothing
	lists   bool   // its result can be filtered, whatever its parameters
	raw     bool   // if all objects in its parameters are the tenant's, so is the whole result
	creates bool   // it creates a bdev whose name is a parameter
	volume  bool   // it creates a logical volume

	params    map[string]paramPlan
	result    *form
	chosen    []string // parameters with names of new objects, which SPDK chooses if they are absent
	subsystem bool     // it creates a subsystem or an iSCSI target
	lvstores  bool     // it creates, renames or deletes an lvstore
}

// A paramPlan is how one parameter is treated.
type paramPlan struct {
	*form
	path string // METHOD.PARAMETER
}

// planAll derives the plans of all methods.
func (t *Tenancy) planAll() {
	ready := &forms{tenancy: t, made: map[string]*form{}}
	for _, m := range t.schema.Methods() {
		p := t.planOf(m)
		p.params, p.result = make(map[string]paramPlan, len(m.Params)), ready.of(t.nodes(m.Result.Schema))
		p.lvstores = slices.Contains(lvstoreMethods, m.Name)
		for _, param := range m.Params {
			nodes := t.nodes(param.Schema)
			p.params[param.Name] = paramPlan{ready.of(nodes), m.Name + "." + param.Name}
			for _, n := range nodes {
				if isNew(n.kind) && n.Format != "uuid" {
					p.chosen = append(p.chosen, param.Name)
				}
				p.subsystem = p.subsystem || newKinds[n.kind] == "nqn" || newKinds[n.kind] == "iqn"
				p.lvstores = p.lvstores || newKinds[n.kind] == "lvstore"
			}
		}
		t.plans[m.Name] = &p
	}
}

// planOf derives the plan of a method.
func (t *Tenancy) planOf(m *rpcschema.Method) (p plan) {
	params, result := &survey{method: m.Name}, &survey{method: m.Name}
	for _, param := range m.Params {
		t.survey(t.nodes(param.Schema), param.Name, param.Required, params, 0)
	}
	t.survey(t.nodes(m.Result.Schema), "", true, result, 0)

	p.creates = slices.Contains(params.kinds, "new-bdev")
	p.volume = m.Mutates && slices.Contains(params.kinds, "lvol-name") && slices.Contains(t.rootKinds(m), "bdev")
	p.raw = len(result.kinds) == 0 && !result.secret && !result.open
	p.lists = !m.Mutates && t.listable(t.nodes(m.Result.Schema), true)
	switch {
	case slices.Contains(harmless, m.Name):
		p.open = true
	case !slices.Contains(m.State, "runtime"):
		p.refusal = "it is for the start of the target"
	case slices.Contains(deferredTargets, m.Name), p.creates && slices.Contains(params.kinds, "bdev"):
		p.refusal = "SPDK applies it to bdevs that do not exist yet, which could belong to another tenant"
	case params.needs != "":
		p.refusal = "it needs " + params.needs + ", which no tenant can own"
	case slices.ContainsFunc(t.rootKinds(m), func(kind string) bool { return !scopes(kind) && !isInner(kind) }):
		p.refusal = "its result names objects that no tenant can own"
	case slices.ContainsFunc(params.kinds, scopes), p.lists:
	case !m.Mutates && len(params.kinds) == 0 && !result.texts && p.raw && !result.numbers:
		p.open = true
	default:
		p.refusal = "it is about the whole target, or about objects that no tenant can own"
	}
	return p
}

// A survey is what a value may contain according to its schema.
type survey struct {
	method  string
	kinds   []string
	needs   string // a required value that names an object which no tenant can own
	texts   bool   // strings without a fixed set of values
	numbers bool
	secret  bool
	open    bool // members that the schema does not describe
}

// survey adds to found what values of the nodes may contain.
func (t *Tenancy) survey(list []node, path string, required bool, found *survey, depth int) {
	if depth > 16 {
		found.open = true
		return
	}
	for _, n := range list {
		found.secret = found.secret || n.sensitive
		if n.kind != "" {
			found.kinds = append(found.kinds, n.kind)
			if required && !scopes(n.kind) && !isConfigured(n.kind) && !isInner(n.kind) {
				found.needs = path + " (" + n.kind + ")"
			}
			continue
		}
		switch n.Type.Main() {
		case "integer", "number":
			found.numbers = true
		case "object":
			found.open = found.open || n.Additional.Allowed && n.Additional.Schema == nil
		case "string":
			if free([]node{n}, "") {
				found.texts = true
				if required && !slices.Contains(harmlessTexts, found.method+"."+path) {
					found.needs = path + " (a name)"
				}
			}
		}
		for _, p := range n.Properties {
			t.survey(t.nodes(p.Schema), path+"."+p.Name, required && slices.Contains(n.Required, p.Name), found, depth+1)
		}
		if n.Items != nil {
			t.survey(t.nodes(n.Items), path, required && n.MinItems > 0, found, depth+1)
		}
		if n.Additional.Schema != nil {
			found.texts = true // the members' names
			t.survey(t.nodes(n.Additional.Schema), path, false, found, depth+1)
		}
	}
}

// rootKinds returns the kinds of objects that the result as a whole may name.
func (t *Tenancy) rootKinds(m *rpcschema.Method) (kinds []string) {
	for _, n := range t.nodes(m.Result.Schema) {
		if n.kind != "" {
			kinds = append(kinds, n.kind)
		}
	}
	return kinds
}

// listable reports whether a result is or has a list of items whose owner can be determined.
func (t *Tenancy) listable(list []node, root bool) bool {
	for _, n := range list {
		if n.Items != nil {
			for _, item := range t.nodes(n.Items) {
				if kind := identityKind(t, item); isObject(kind) || isObject(item.kind) {
					return true
				}
			}
		}
		for _, p := range n.Properties {
			if root && t.listable(t.nodes(p.Schema), false) {
				return true
			}
		}
	}
	return false
}

// identityKind returns the kind of the member that names an object itself: by convention, the
// first member that names anything.
func identityKind(t *Tenancy, n node) string {
	_, kind := t.identity([]node{n})
	return kind
}

// identity returns the member that names an object itself, and its kind.
func (t *Tenancy) identity(object []node) (member, kind string) {
	for _, n := range object {
		for _, p := range n.Properties {
			for _, q := range t.nodes(p.Schema) {
				if q.kind != "" && !isInner(q.kind) {
					return p.Name, q.kind
				}
			}
		}
	}
	return "", ""
}
