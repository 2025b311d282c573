package persist

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A comparison finds calls that are in one configuration but not in another.
type comparison struct {
	schema *rpcschema.Document
	// sameRelease means that the same SPDK release wrote both configurations, so that equal calls
	// have equal texts. Releases add and remove parameters, so calls written by different releases
	// are compared by their methods and the objects that they name.
	sameRelease bool
}

func compare(schema *rpcschema.Document, a, b *Configuration) comparison {
	return comparison{schema: schema, sameRelease: a.Saved.Release != "" && a.Saved.Release == b.Saved.Release}
}

// A Call describes a call in a configuration, without its secrets.
type Call struct {
	Subsystem string
	Method    string
	Names     []rpcschema.Name

	numbers map[string]any // the numbers in its parameters
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

// namesAny reports whether the call names at least one of the objects.
func (c Call) namesAny(objects map[string]bool) bool {
	return slices.ContainsFunc(c.Names, func(n rpcschema.Name) bool { return objects[n.Value] })
}

// missing lists the calls that a contains but b lacks, in a's order. The order in b does not
// matter, because SPDK changes the order at each start.
func (c comparison) missing(a, b *Configuration) []Call {
	return c.describeAll(c.without(places(a), places(b)))
}

// describeAll describes calls, without their secrets.
func (c comparison) describeAll(list []place) (calls []Call) {
	for _, p := range list {
		calls = append(calls, c.describe(p.subsystem, p.call))
	}
	return calls
}

type place struct {
	subsystem string
	index     int // index in its subsystem
	call      json.RawMessage
}

func places(c *Configuration) (list []place) {
	for _, s := range c.Subsystems {
		for i, call := range s.Calls {
			list = append(list, place{s.Name, i, call})
		}
	}
	return list
}

// without returns the calls in a that b lacks, in a's order. For speed, it decodes only calls
// without a textually equal counterpart.
func (c comparison) without(a, b []place) []place {
	a, b = unmatched(a, b, func(p place) string { return compact(p.call) })
	a, _ = unmatched(a, b, func(p place) string { return c.key(p.call) })
	return a
}

// unmatched removes calls with equal keys from both lists.
func unmatched(a, b []place, key func(place) string) (onlyA, onlyB []place) {
	found := map[string]int{}
	for _, p := range b {
		found[p.subsystem+" "+key(p)]++
	}
	matched := map[string]int{}
	for _, p := range a {
		k := p.subsystem + " " + key(p)
		if found[k] > matched[k] {
			matched[k]++
			continue
		}
		onlyA = append(onlyA, p)
	}
	for _, p := range b {
		k := p.subsystem + " " + key(p)
		if matched[k] > 0 {
			matched[k]--
			continue
		}
		onlyB = append(onlyB, p)
	}
	return onlyA, onlyB
}

// compact removes the spaces between the tokens of a call's JSON text.
func compact(call json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, call); err != nil {
		return string(call)
	}
	return b.String()
}

func (c comparison) same(a, b *Configuration) bool {
	return a.calls() == b.calls() && len(c.missing(a, b)) == 0
}

// key returns the same string for all calls that count as equal.
func (c comparison) key(call json.RawMessage) string {
	e, err := entryOf(call)
	if err != nil {
		return string(call) // matches only identical text
	}
	params := e.Params
	if !c.sameRelease {
		params = c.identity(e)
	}
	if _, named := params["name"]; named && params["uuid"] != nil {
		// Before v24.05, a bdev may get a new UUID at each start.
		params = maps.Clone(params)
		delete(params, "uuid")
	}
	if e.Method == enableHistogram { // SPDK does not save the options; see correct
		params = maps.Clone(params)
		delete(params, "min_nsec")
		delete(params, "max_nsec")
	}
	if e.Method == waitMethod { // the timeout depends on the number of earlier waits; see correct
		params = maps.Clone(params)
		delete(params, "timeout")
	}
	text, err := json.Marshal(params) // json.Marshal sorts keys
	if err != nil {
		return string(call)
	}
	return e.Method + " " + string(text)
}

// identity returns a call's required scalar parameters and the objects that the call names or, if
// the method is unknown, all parameters.
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

const maxNames = 4096 // more than any SPDK call contains

func (c comparison) describe(subsystem string, call json.RawMessage) Call {
	e, err := entryOf(call)
	if err != nil {
		return Call{Subsystem: subsystem}
	}
	d := Call{Subsystem: subsystem, Method: e.Method, numbers: numbersOf(e.Params)}
	d.Names, _ = c.schema.Names(e.Method, e.Params, maxNames)
	return d
}

// firstCalls describes at most most calls from the beginning of a list, for the log.
func firstCalls(calls []Call, most int) []string {
	var list []string
	for _, c := range calls[:min(len(calls), most)] {
		list = append(list, c.String())
	}
	return list
}
