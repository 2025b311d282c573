package persist

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// comparison finds the calls of one configuration that another lacks.
type comparison struct {
	schema *rpcschema.Document
	// sameRelease means that both are of one release, which writes equal calls equally.
	// Between releases, parameters are added and removed, so calls are compared by their
	// method and the objects that they name.
	sameRelease bool
}

func compare(schema *rpcschema.Document, a, b *Configuration) comparison {
	return comparison{schema: schema, sameRelease: a.Saved.Release != "" && a.Saved.Release == b.Saved.Release}
}

// A Call describes a call of a configuration, without its secrets.
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

// namesAny reports whether the call names one of these objects.
func (c Call) namesAny(objects map[string]bool) bool {
	return slices.ContainsFunc(c.Names, func(n rpcschema.Name) bool { return objects[n.Value] })
}

// missing lists the calls of a that b lacks, in a's order. It ignores the order of the calls,
// because SPDK's changes with each start.
func (c comparison) missing(a, b *Configuration) (list []Call) {
	found := map[string]int{}
	for _, s := range b.Subsystems {
		for _, call := range s.Calls {
			found[s.Name+" "+c.key(call)]++
		}
	}
	for _, s := range a.Subsystems {
		for _, call := range s.Calls {
			key := s.Name + " " + c.key(call)
			if found[key] > 0 {
				found[key]--
				continue
			}
			list = append(list, c.describe(s.Name, call))
		}
	}
	return list
}

// same reports whether both have the same calls.
func (c comparison) same(a, b *Configuration) bool {
	return a.calls() == b.calls() && len(c.missing(a, b)) == 0
}

// key is the text by which calls are compared.
func (c comparison) key(call json.RawMessage) string {
	e, err := entryOf(call)
	if err != nil {
		return string(call) // equal only to an identical text
	}
	params := e.Params
	if !c.sameRelease {
		params = c.identity(e)
	}
	if _, named := params["name"]; named && params["uuid"] != nil {
		// On releases before v24.05, a bdev may get a new UUID at each start.
		params = maps.Clone(params)
		delete(params, "uuid")
	}
	if e.Method == enableHistogram { // SPDK does not save them, see mend
		params = maps.Clone(params)
		delete(params, "min_nsec")
		delete(params, "max_nsec")
	}
	text, err := json.Marshal(params) // sorted by name
	if err != nil {
		return string(call)
	}
	return e.Method + " " + string(text)
}

// identity returns the required scalar parameters of a call and the objects that it names. For
// an unknown method it returns all parameters.
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

const maxNames = 4096 // more than any call of SPDK has

func (c comparison) describe(subsystem string, call json.RawMessage) Call {
	e, err := entryOf(call)
	if err != nil {
		return Call{Subsystem: subsystem}
	}
	d := Call{Subsystem: subsystem, Method: e.Method}
	d.Names, _ = c.schema.Names(e.Method, e.Params, maxNames)
	return d
}

// firstCalls describes at most so many calls, for the log.
func firstCalls(calls []Call, most int) []string {
	var list []string
	for _, c := range calls[:min(len(calls), most)] {
		list = append(list, c.String())
	}
	return list
}
