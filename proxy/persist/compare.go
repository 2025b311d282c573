package persist

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// comparison tells what one configuration has that another lacks.
type comparison struct {
	schema *rpcschema.Document
	// sameRelease: SPDK writes the same thing in the same way. Otherwise members come
	// and go with releases, and calls are known by their method and what they name.
	sameRelease bool
}

func compare(schema *rpcschema.Document, a, b *Configuration) comparison {
	return comparison{schema: schema, sameRelease: a.Saved.Release != "" && a.Saved.Release == b.Saved.Release}
}

// A Call describes one of a configuration, without its secrets.
type Call struct {
	Subsystem string
	Method    string
	Names     []rpcschema.Name
}

func (c Call) String() string {
	var names []string
	for _, n := range c.Names[:min(len(c.Names), 3)] {
		names = append(names, n.Kind+" "+n.Value)
	}
	if len(names) == 0 {
		return c.Method
	}
	return c.Method + " (" + strings.Join(names, ", ") + ")"
}

// names says whether the call names one of these.
func (c Call) names(these map[string]bool) bool {
	return slices.ContainsFunc(c.Names, func(n rpcschema.Name) bool { return these[n.Value] })
}

// missing lists the calls of a that b lacks, in a's order. The order of either
// does not matter: SPDK's own changes with each start.
func (c comparison) missing(a, b *Configuration) (list []Call) {
	there := map[string]int{}
	for _, s := range b.Subsystems {
		for _, call := range s.Calls {
			there[s.Name+" "+c.key(call)]++
		}
	}
	for _, s := range a.Subsystems {
		for _, call := range s.Calls {
			key := s.Name + " " + c.key(call)
			if there[key] > 0 {
				there[key]--
				continue
			}
			list = append(list, c.describe(s.Name, call))
		}
	}
	return list
}

// same says whether both hold the same calls.
func (c comparison) same(a, b *Configuration) bool {
	return a.calls() == b.calls() && len(c.missing(a, b)) == 0
}

// key is what a call is recognised by.
func (c comparison) key(call json.RawMessage) string {
	e, err := entryOf(call)
	if err != nil {
		return string(call) // only what is the very same
	}
	known := e.Params
	if !c.sameRelease {
		known = c.identity(e)
	}
	if _, named := known["name"]; named && known["uuid"] != nil {
		// A bdev's own UUID may be a new one after each start, on releases before v24.05.
		known = maps.Clone(known)
		delete(known, "uuid")
	}
	text, err := json.Marshal(known) // sorted by name
	if err != nil {
		return string(call)
	}
	return e.Method + " " + string(text)
}

// identity is what a call must give, and what it names. Of methods that are not
// known, or name nothing, it is everything, or nothing but the method.
func (c comparison) identity(e entry) map[string]any {
	m, ok := c.schema.Method(e.Method)
	if !ok {
		return e.Params
	}
	known := map[string]any{}
	for _, p := range m.Params {
		switch v := e.Params[p.Name].(type) {
		case nil, map[string]any, []any:
		default:
			if p.Required {
				known[p.Name] = v
			}
		}
	}
	names, _ := c.schema.Names(e.Method, e.Params, maxNames)
	known["names"] = names
	return known
}

const maxNames = 4096 // more than a call of SPDK's can have

func (c comparison) describe(subsystem string, call json.RawMessage) Call {
	e, err := entryOf(call)
	if err != nil {
		return Call{Subsystem: subsystem}
	}
	d := Call{Subsystem: subsystem, Method: e.Method}
	d.Names, _ = c.schema.Names(e.Method, e.Params, maxNames)
	return d
}

// described are calls as text, the first few.
func described(calls []Call, most int) []string {
	var list []string
	for _, c := range calls[:min(len(calls), most)] {
		list = append(list, c.String())
	}
	return list
}
