package rpcschema

import (
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A compiler builds JSON Schema validators from one release's view of the document. The view omits
// members that the release does not support, and closes objects, because SPDK refuses unknown
// members.
type compiler struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	done     sync.Map // maps locations to *jsonschema.Schema

	params    map[string]any // maps methods to raw schemas
	acceptors acceptors      // guarded by mu
	accepting sync.Map       // maps methods to *acceptor, which may be nil
}

// acceptor returns the acceptor of a method's parameters, or nil.
func (c *compiler) acceptor(method string) *acceptor {
	if a, ok := c.accepting.Load(method); ok {
		return a.(*acceptor)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.acceptors.of(c.params[method])
	c.accepting.Store(method, a)
	return a
}

const documentURL = "spdk:///openrpc.json"

// compiled returns the validator for a method's params or result at release r.
func (c *compiler) compiled(r Release, part, method string) (*jsonschema.Schema, error) {
	location := documentURL + "#/" + part + "/" + method
	if s, ok := c.done.Load(location); ok {
		return s.(*jsonschema.Schema), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("compile the %s of %s for %s: %w", part, method, r, err)
	}
	c.done.Store(location, s)
	return s, nil
}

// compilerFor returns the compiler for a release. The first call for a release creates the
// compiler, which takes tens of milliseconds. Concurrent calls wait for this compiler instead of
// creating their own.
func (d *Document) compilerFor(r Release) (*compiler, error) {
	once, ok := d.releases.Load(r)
	if !ok {
		once, _ = d.releases.LoadOrStore(r, sync.OnceValues(func() (*compiler, error) { return d.newCompiler(r) }))
	}
	return once.(func() (*compiler, error))()
}

func (d *Document) newCompiler(r Release) (*compiler, error) {
	raw, err := d.rawDocument()
	if err != nil {
		return nil, err
	}
	closed := view{release: r, closed: true}
	params, results := map[string]any{}, map[string]any{}
	for _, v := range raw["methods"].([]any) {
		m := v.(map[string]any)
		name := m["name"].(string)
		params[name] = closed.schema(d.byName[name].paramsObject(r, m))
		if result, ok := m["result"].(map[string]any); ok {
			results[name] = closed.schema(result["schema"])
		}
	}
	schemas := closed.members(rawSchemas(raw))
	c := &compiler{
		compiler: jsonschema.NewCompiler(), params: params,
		acceptors: acceptors{schemas: schemas, shared: map[string]*acceptor{}},
	}
	err = c.compiler.AddResource(documentURL, map[string]any{
		"params": params, "results": results, "components": map[string]any{"schemas": schemas},
	})
	if err != nil {
		return nil, fmt.Errorf("load the RPC schema: %w", err)
	}
	return c, nil
}

// paramsObject derives the schema of the object that contains a method's parameters from the raw
// document.
func (m *Method) paramsObject(r Release, raw map[string]any) map[string]any {
	properties, required := map[string]any{}, []any{}
	list, _ := raw["params"].([]any)
	for _, v := range list {
		p := v.(map[string]any)
		name := p["name"].(string)
		properties[name] = p["schema"]
		if m.RequiredAt(name, r) {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// RequiredAt reports whether release r requires a parameter. If r supports both an old parameter
// and its successor, it requires neither by itself. If r supports only the old parameter, that
// parameter is required if its successor is.
func (m *Method) RequiredAt(name string, r Release) bool {
	p := m.Param(name)
	if !p.Schema.Has(r) {
		return false
	}
	if p.Required {
		return m.forerunnerAt(p, r) == nil
	}
	if until := p.Schema.RequiredUntil; until.Known() && r.Known() && !until.Before(r) {
		return true
	}
	for _, successor := range m.Params {
		rep := successor.Schema.Replaces
		if rep != nil && rep.Name == name && successor.Required && !successor.Schema.Has(r) {
			return true
		}
	}
	return false
}

// forerunnerAt returns the parameter that p replaced, if release r supports both.
func (m *Method) forerunnerAt(p *Param, r Release) *Param {
	if p.Schema.Replaces == nil {
		return nil
	}
	old := m.Param(p.Schema.Replaces.Name)
	if old == nil || !old.Schema.Has(r) || !p.Schema.Has(r) {
		return nil
	}
	return old
}
