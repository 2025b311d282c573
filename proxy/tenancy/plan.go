package tenancy

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A plan is what the schema alone says of a method to tenants.
type plan struct {
	refusal string // why none of them may call it; "": they may
	open    bool   // names nothing and changes nothing
	lists   bool   // its result can be filtered, whatever its parameters
	raw     bool   // once its parameters are theirs, so is all of its result
	creates bool   // makes a bdev by a name of its parameters
	volume  bool   // makes a logical volume

	params    map[string]paramPlan
	result    *form
	chosen    []string // names of what is made, which SPDK would choose where they are left out
	subsystem bool     // makes a subsystem or an iSCSI target
	lvstores  bool     // makes, renames or takes away an lvstore
}

// A paramPlan is what is known of one parameter.
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
				if isMade(n.kind) && n.Format != "uuid" {
					p.chosen = append(p.chosen, param.Name)
				}
				p.subsystem = p.subsystem || made[n.kind] == "nqn" || made[n.kind] == "iqn"
				p.lvstores = p.lvstores || made[n.kind] == "lvstore"
			}
		}
		t.plans[m.Name] = &p
	}
}

// planOf derives the plan of a method.
func (t *Tenancy) planOf(m *rpcschema.Method) (p plan) {
	params, result := &survey{method: m.Name}, &survey{method: m.Name}
	for _, param := range m.Params {
		t.look(t.nodes(param.Schema), param.Name, param.Required, params, 0)
	}
	t.look(t.nodes(m.Result.Schema), "", true, result, 0)

	p.creates = slices.Contains(params.kinds, "new-bdev")
	p.volume = m.Mutates && slices.Contains(params.kinds, "lvol-name") && slices.Contains(t.rootKinds(m), "bdev")
	p.raw = len(result.kinds) == 0 && !result.secret && !result.open
	p.lists = !m.Mutates && t.listable(t.nodes(m.Result.Schema), true)
	switch {
	case slices.Contains(harmless, m.Name):
		p.open = true
	case !slices.Contains(m.State, "runtime"):
		p.refusal = "it belongs to the target's start"
	case slices.Contains(deferredTargets, m.Name), p.creates && slices.Contains(params.kinds, "bdev"):
		p.refusal = "SPDK keeps it for bdevs that do not exist yet, which could become somebody else's"
	case params.needs != "":
		p.refusal = "it needs " + params.needs + ", which no tenant can own"
	case slices.ContainsFunc(t.rootKinds(m), func(kind string) bool { return !scopes(kind) && !isInner(kind) }):
		p.refusal = "its result names what no tenant can own"
	case slices.ContainsFunc(params.kinds, scopes), p.lists:
	case !m.Mutates && len(params.kinds) == 0 && !result.texts && p.raw && !result.numbers:
		p.open = true
	default:
		p.refusal = "it concerns the whole target, or what no tenant can own"
	}
	return p
}

// A survey gathers what the schema of a value may hold.
type survey struct {
	method  string
	kinds   []string
	needs   string // what must be given, but can be nobody's
	texts   bool   // free texts
	numbers bool
	secret  bool
	open    bool // members that are not described
}

func (t *Tenancy) look(list []node, path string, required bool, found *survey, depth int) {
	if depth > 16 {
		found.open = true
		return
	}
	for _, n := range list {
		found.secret = found.secret || n.sensitive
		if n.kind != "" {
			found.kinds = append(found.kinds, n.kind)
			if required && !scopes(n.kind) && !isGranted(n.kind) && !isInner(n.kind) {
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
			t.look(t.nodes(p.Schema), path+"."+p.Name, required && slices.Contains(n.Required, p.Name), found, depth+1)
		}
		if n.Items != nil {
			t.look(t.nodes(n.Items), path, required && n.MinItems > 0, found, depth+1)
		}
		if n.Additional.Schema != nil {
			found.texts = true // the members' names
			t.look(t.nodes(n.Additional.Schema), path, false, found, depth+1)
		}
	}
}

// rootKinds are what the result as a whole names.
func (t *Tenancy) rootKinds(m *rpcschema.Method) (kinds []string) {
	for _, n := range t.nodes(m.Result.Schema) {
		if n.kind != "" {
			kinds = append(kinds, n.kind)
		}
	}
	return kinds
}

// listable says whether a result is a list, or holds lists, of items that can
// be told to be somebody's.
func (t *Tenancy) listable(list []node, root bool) bool {
	for _, n := range list {
		if n.Items != nil {
			for _, item := range t.nodes(n.Items) {
				if kind := identityKind(t, item); isHeld(kind) || isHeld(item.kind) {
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

// identityKind is the kind of the member that names an object itself: by
// convention the first that names anything.
func identityKind(t *Tenancy, n node) string {
	_, kind := t.identity([]node{n})
	return kind
}

// identity finds the member that names an object itself.
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
