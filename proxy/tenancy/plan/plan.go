package plan

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Plan describes how package tenancy treats a method. It is derived from the schema alone.
type Plan struct {
	Refusal string // why tenants may not call the method; "" if they may
	Open    bool   // the method names no objects and changes nothing
	Lists   bool   // the method's result can be filtered, whatever the parameters are
	Raw     bool   // if the tenant owns all objects in the parameters, it owns the whole result
	Creates bool   // the method creates a bdev named by a parameter
	Volume  bool   // the method creates a logical volume

	Params    map[string]Param
	Result    *Form
	Chosen    []string // parameters with names of new objects; if they are absent, SPDK chooses the names
	Subsystem bool     // the method creates a subsystem or an iSCSI target
	LVStores  bool     // the method creates, renames or deletes an lvstore
}

// A Param describes how package tenancy treats a parameter.
type Param struct {
	*Form
	Path string // METHOD.PARAMETER
}

// Plans holds the plans for all methods.
type Plans struct {
	Shapes
	byMethod map[string]*Plan
}

// New derives the plans for all methods.
func New(schema *rpcschema.Document) *Plans {
	t := &Plans{Shapes: Shapes{schema: schema}, byMethod: map[string]*Plan{}}
	ready := &forms{shapes: &t.Shapes, made: map[string]*Form{}}
	for _, m := range schema.Methods() {
		p := t.planOf(m)
		p.Params, p.Result = make(map[string]Param, len(m.Params)), ready.of(t.Nodes(m.Result.Schema))
		p.LVStores = slices.Contains(lvstoreMethods, m.Name)
		for _, param := range m.Params {
			nodes := t.Nodes(param.Schema)
			p.Params[param.Name] = Param{ready.of(nodes), m.Name + "." + param.Name}
			for _, n := range nodes {
				if IsNew(n.Kind) && n.Format != "uuid" {
					p.Chosen = append(p.Chosen, param.Name)
				}
				p.Subsystem = p.Subsystem || Created(n.Kind) == "nqn" || Created(n.Kind) == "iqn"
				p.LVStores = p.LVStores || Created(n.Kind) == "lvstore"
			}
		}
		t.byMethod[m.Name] = &p
	}
	return t
}

// Of returns the plan for a method, or nil if the schema does not contain the method.
func (p *Plans) Of(method string) *Plan { return p.byMethod[method] }

// planOf derives the plan for a method.
func (t *Shapes) planOf(m *rpcschema.Method) (p Plan) {
	params, result := &survey{method: m.Name}, &survey{method: m.Name}
	for _, param := range m.Params {
		t.survey(t.Nodes(param.Schema), param.Name, param.Required, params, 0)
	}
	t.survey(t.Nodes(m.Result.Schema), "", true, result, 0)

	p.Creates = slices.Contains(params.kinds, "new-bdev")
	p.Volume = m.Mutates && slices.Contains(params.kinds, "lvol-name") && slices.Contains(t.rootKinds(m), "bdev")
	p.Raw = len(result.kinds) == 0 && !result.secret && !result.open
	p.Lists = !m.Mutates && t.listable(t.Nodes(m.Result.Schema), true)
	switch {
	case slices.Contains(harmless, m.Name):
		p.Open = true
	case !slices.Contains(m.State, "runtime"):
		p.Refusal = "it is for the start of the target"
	case slices.Contains(deferredTargets, m.Name), p.Creates && slices.Contains(params.kinds, "bdev"):
		p.Refusal = "SPDK applies it to bdevs that do not exist yet, which could belong to another tenant"
	case slices.Contains(claiming, m.Name):
		p.Refusal = "SPDK loads the disks of a RAID at each start, and a host may still write to this one"
	case slices.Contains(uncounted, m.Name):
		p.Refusal = "SPDK does not list what it adds, so no quota can limit it"
	case params.needs != "":
		p.Refusal = "it needs " + params.needs + ", which no tenant can own"
	case slices.ContainsFunc(t.rootKinds(m), func(kind string) bool { return !scopes(kind) && !IsInner(kind) }):
		p.Refusal = "its result names objects that no tenant can own"
	case slices.ContainsFunc(params.kinds, scopes), p.Lists:
	case !m.Mutates && len(params.kinds) == 0 && !result.texts && p.Raw && !result.numbers:
		p.Open = true
	default:
		p.Refusal = "it is about the whole target, or about objects that no tenant can own"
	}
	return p
}

// A survey describes what a value may contain according to its schema.
type survey struct {
	method  string
	kinds   []string
	needs   string // a required value that names an object of a kind that cannot belong to a tenant
	texts   bool   // there are strings without a fixed set of values
	numbers bool
	secret  bool
	open    bool // there are members that the schema does not describe
}

// survey adds the possible contents of a value to found. list contains the value's nodes.
func (t *Shapes) survey(list []Node, path string, required bool, found *survey, depth int) {
	if depth > 16 {
		found.open = true
		return
	}
	for _, n := range list {
		found.secret = found.secret || n.sensitive
		if n.Kind != "" {
			found.kinds = append(found.kinds, n.Kind)
			if required && !scopes(n.Kind) && !IsConfigured(n.Kind) && !IsInner(n.Kind) {
				found.needs = path + " (" + n.Kind + ")"
			}
			continue
		}
		switch n.Type.Main() {
		case "integer", "number":
			found.numbers = true
		case "object":
			found.open = found.open || n.Additional.Allowed && n.Additional.Schema == nil
		case "string":
			if Free([]Node{n}, "") {
				found.texts = true
				if required && !slices.Contains(harmlessTexts, found.method+"."+path) {
					found.needs = path + " (a name)"
				}
			}
		}
		for _, p := range n.Properties {
			t.survey(t.Nodes(p.Schema), path+"."+p.Name, required && slices.Contains(n.Required, p.Name), found, depth+1)
		}
		if n.Items != nil {
			t.survey(t.Nodes(n.Items), path, required && n.MinItems > 0, found, depth+1)
		}
		if n.Additional.Schema != nil {
			found.texts = true // the names of the members
			t.survey(t.Nodes(n.Additional.Schema), path, false, found, depth+1)
		}
	}
}

// rootKinds returns the kinds of objects that the result as a whole may name.
func (t *Shapes) rootKinds(m *rpcschema.Method) (kinds []string) {
	for _, n := range t.Nodes(m.Result.Schema) {
		if n.Kind != "" {
			kinds = append(kinds, n.Kind)
		}
	}
	return kinds
}

// listable reports whether a result is or contains a list of items whose owner can be determined.
func (t *Shapes) listable(list []Node, root bool) bool {
	for _, n := range list {
		if n.Items != nil {
			for _, item := range t.Nodes(n.Items) {
				if kind := identityKind(t, item); IsObject(kind) || IsObject(item.Kind) {
					return true
				}
			}
		}
		for _, p := range n.Properties {
			if root && t.listable(t.Nodes(p.Schema), false) {
				return true
			}
		}
	}
	return false
}

// identityKind returns the kind of the member that contains the object's own name. By convention,
// it is the first member that names anything.
func identityKind(t *Shapes, n Node) string {
	_, kind := t.Identity([]Node{n})
	return kind
}

// Identity returns the member that contains the object's own name, and the kind of that member.
func (t *Shapes) Identity(object []Node) (member, kind string) {
	for _, n := range object {
		for _, p := range n.Properties {
			for _, q := range t.Nodes(p.Schema) {
				if q.Kind != "" && !IsInner(q.Kind) {
					return p.Name, q.Kind
				}
			}
		}
	}
	return "", ""
}
