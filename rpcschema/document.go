package rpcschema

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// OpenRPC is the assembled document, as `make generate` writes it.
//
//go:embed openrpc.json
var OpenRPC []byte

// A Document is the schema of SPDK's RPCs. It does not change after it has been loaded, and is safe
// for concurrent use.
type Document struct {
	methods    []*Method // sorted by name
	byName     map[string]*Method
	redactions redactPlans
	byAlias    map[string]*Method // deprecated names
	schemas    map[string]*Schema
	raw        []byte
	releases   sync.Map // maps a Release to a func() (*compiler, error)
}

// A Method is one RPC.
type Method struct {
	Window
	Name        string   `json:"name"`
	Summary     string   `json:"summary"`
	Description string   `json:"description"`
	State       []string `json:"x-spdk-state"` // startup, runtime, or both
	Mutates     bool     `json:"x-spdk-mutates"`
	// ReadsIf lists the parameter values that make a mutating method only read. Each of these
	// parameters must be omitted or have one of the listed values.
	ReadsIf map[string][]any `json:"x-spdk-reads-if"`
	// Saved states when a change is saved in the target's configuration: SavedFirst, SavedNever, or
	// "", which means shortly after the response.
	Saved string `json:"x-spdk-saved"`
	// Removes means that the method removes the objects named in the call from the configuration.
	Removes bool `json:"x-spdk-removes"`
	// Undoes names the method that creates the objects that this method removes. It is set if both
	// methods identify an object only by equal parameters, such as a group's tag.
	Undoes string `json:"x-spdk-undoes"`
	// Stalls means that the method may block the target's I/O or wait forever, although it changes
	// nothing.
	Stalls bool `json:"x-spdk-stalls"`
	// Pauses means that SPDK pauses the subsystem named in the call, although the method changes
	// nothing.
	Pauses bool `json:"x-spdk-pauses"`
	// Statistics means that the result consists of figures on load, health or usage.
	Statistics bool     `json:"x-spdk-statistics"`
	Aliases    []string `json:"x-spdk-aliases"` // deprecated names
	// ServedBy names the program that serves the method: "" means SPDK, and ServedByProxy means
	// spdk-proxy itself.
	ServedBy string `json:"x-spdk-served-by"`
	Tags     []struct {
		Name string `json:"name"`
	} `json:"tags"`
	Params []*Param `json:"params"`
	// ParamsForm is the form of a call without parameters; see WithoutParams.
	ParamsForm string `json:"x-spdk-params"`
	// OneOf lists groups of parameters, exactly one of which must be given. AnyOf lists groups of
	// parameters, at least one of which must be given.
	OneOf  [][]string `json:"x-spdk-one-of"`
	AnyOf  [][]string `json:"x-spdk-any-of"`
	Result Param      `json:"result"`
	Errors []Error    `json:"errors"`
	// ErrorKinds maps the error codes that have a special meaning for this method to their kinds.
	// The kinds are stored here because OpenRPC's error objects allow no extensions.
	ErrorKinds map[int]string `json:"x-spdk-error-kinds"`
	// DecodeError is the code that SPDK returns when it cannot decode the parameters.
	DecodeError int `json:"x-spdk-decode-error"`
	// Relaxed lists the releases that ignore unknown parameters; nil means none. See
	// IgnoresUnknown.
	Relaxed *Relaxed `json:"x-spdk-relaxed"`
	// Instead describes the replacement for a removed method.
	Instead string `json:"x-spdk-instead"`
	// RPCPy describes how scripts/rpc.py makes the call, by parameter or path. It is nil if rpc.py
	// has no command for the call. RPCPyFails lists the releases whose rpc.py cannot make the call;
	// see RPCPyAt.
	RPCPy      map[string]RPCPyWords `json:"x-spdk-rpcpy"`
	RPCPyFails []Release             `json:"x-spdk-rpcpy-fails"`

	doc     *Document
	changes []change
	varies  bool
}

// These are the values of Method.Saved.
const (
	// SavedFirst means that a change is saved before the response, because it determines who can
	// access data, or limits a volume.
	SavedFirst = "first"
	SavedNever = "never" // the method changes nothing that SPDK saves
)

// Configures reports whether a call of the method may change the configuration that SPDK saves.
func (m *Method) Configures() bool { return m.Mutates && m.Saved != SavedNever }

// ServedByProxy marks methods that spdk-proxy itself serves and that SPDK does not have.
const ServedByProxy = "proxy"

// A Param is a named parameter or the result of a method.
type Param struct {
	Name     string  `json:"name"`
	Summary  string  `json:"summary"`
	Required bool    `json:"required"`
	Schema   *Schema `json:"schema"`
}

// An Error is a known error of a method.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	// Kind is one of ErrorKinds if the code has a special meaning for this method, and ""
	// otherwise.
	Kind string `json:"-"`
}

// ErrorKinds lists the kinds that a method can assign to a code (x-spdk-error-kinds).
var ErrorKinds = []string{"busy", "failed", "wrong-state"}

// KindOf returns the kind that the schema assigns to an error code of m, or "" if it assigns none.
func (m *Method) KindOf(code int) string {
	for _, e := range m.Errors {
		if e.Code == code {
			return e.Kind
		}
	}
	return ""
}

// Default returns the embedded document. It panics if the embedded text is invalid, but the
// package's tests ensure that it is valid.
var Default = sync.OnceValue(func() *Document {
	d, err := Load(OpenRPC)
	if err != nil {
		panic(err)
	}
	return d
})

// Load parses an assembled document.
func Load(text []byte) (*Document, error) {
	var file struct {
		Methods    []*Method `json:"methods"`
		Components struct {
			Schemas map[string]*Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := decode(text, &file); err != nil {
		return nil, fmt.Errorf("load the RPC schema: %w", err)
	}
	d := &Document{methods: file.Methods, byName: map[string]*Method{}, byAlias: map[string]*Method{}, schemas: file.Components.Schemas, raw: text}
	slices.SortFunc(d.methods, func(a, b *Method) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range d.methods {
		if d.byName[m.Name] != nil {
			return nil, fmt.Errorf("load the RPC schema: method %s is listed twice", m.Name)
		}
		d.byName[m.Name] = m
		for i := range m.Errors {
			m.Errors[i].Kind = m.ErrorKinds[m.Errors[i].Code]
		}
		m.DecodeError = cmp.Or(m.DecodeError, invalidParams)
		m.doc, m.changes = d, d.changes(m)
		m.varies = len(m.changes) > 0 || slices.ContainsFunc(m.Params, func(p *Param) bool { return d.variesIn(p.Schema, nil) })
		for _, alias := range m.Aliases {
			d.byAlias[alias] = m
		}
	}
	return d, nil
}

// Method returns the method with exactly this name.
func (d *Document) Method(name string) (*Method, bool) {
	m, ok := d.byName[name]
	return m, ok
}

// Methods returns all methods, sorted by name.
func (d *Document) Methods() []*Method { return slices.Clone(d.methods) }

// OfSPDK returns the methods that SPDK itself serves.
func (d *Document) OfSPDK() []*Method {
	return slices.DeleteFunc(d.Methods(), func(m *Method) bool { return m.ServedBy != "" })
}

// Match returns the methods whose names match a glob, with the syntax of [path.Match].
func (d *Document) Match(glob string) ([]*Method, error) {
	var found []*Method
	for _, m := range d.methods {
		ok, err := path.Match(glob, m.Name)
		if err != nil {
			return nil, fmt.Errorf("glob %q: %w", glob, err)
		}
		if ok {
			found = append(found, m)
		}
	}
	return found, nil
}

// Suggest returns the method whose name is most similar to the given one, or "" if no name is
// similar.
func (d *Document) Suggest(name string) string {
	names := make([]string, len(d.methods))
	for i, m := range d.methods {
		names[i] = m.Name
	}
	return Nearest(name, names)
}

// Resolve follows references and returns the schema at their end. Annotations next to a reference
// apply only to that use, so the caller must read them before it calls Resolve.
func (d *Document) Resolve(s *Schema) *Schema {
	for s != nil && s.Ref != "" {
		s = d.schemas[s.RefName()]
	}
	return s
}

// Schemas returns the shared schemas by name.
func (d *Document) Schemas() map[string]*Schema { return d.schemas }

// Area returns the part of SPDK that m belongs to, such as bdev_lvol or nvmf.
func (m *Method) Area() string {
	if len(m.Tags) == 0 {
		return ""
	}
	return m.Tags[0].Name
}

// Param returns a parameter of m.
func (m *Method) Param(name string) *Param {
	for _, p := range m.Params {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Nearest returns the candidate that is most similar to name, for "did you mean" hints. The edit
// distance must be at most a third of the length of name; if no candidate is that close, Nearest
// returns "".
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", max(2, len(name)/3)+1
	for _, c := range candidates {
		if max(len(c)-len(name), len(name)-len(c)) >= bestDistance {
			// The lengths alone differ by too much. This check also limits the cost of long names.
			continue
		}
		if d := editDistance(name, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
