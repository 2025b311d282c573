package replica

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A finding is the shortest sequence of events that violates an invariant.
type finding struct {
	violation string
	events    []event
}

func (f finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after:\n", f.violation)
	for i, e := range f.events {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, e)
	}
	return b.String()
}

// A visit records how the search reached a state.
type visit struct {
	parent uint32
	event  event
}

// A result describes the extent and the outcome of a search.
type result struct {
	states, steps, depth int
	// complete reports whether the search reached every state within the limits of the model.
	complete bool
	found    *finding
}

// search explores all states breadth first, up to the depth and the number of states, and stops at
// the first violation. Only a 64-bit hash of each visited state is stored, so states with equal
// hashes count as one.
func search(m *stepper, initial world, depth, limit int) result {
	seed := maphash.MakeSeed()
	initial = initial.canonical(m.reduced)
	visited := map[uint64]struct{}{maphash.Comparable(seed, initial): {}}
	visits := []visit{{}}
	frontier, from := []world{initial}, []uint32{0}
	r := result{states: 1}
	trace := func(at uint32, last event, violation string) *finding {
		f := &finding{violation: violation, events: []event{last}}
		for ; at != 0; at = visits[at].parent {
			f.events = append(f.events, visits[at].event)
		}
		slices.Reverse(f.events)
		return f
	}
	for ; r.depth < depth && len(frontier) > 0 && r.states < limit; r.depth++ {
		var next []world
		var ids []uint32
		for i, s := range frontier {
			for _, st := range m.next(s) {
				r.steps++
				if st.violation == "" {
					st.violation = m.violated(st.next)
				}
				if st.violation != "" {
					r.found = trace(from[i], st.event, st.violation)
					return r
				}
				c := st.next.canonical(m.reduced)
				h := maphash.Comparable(seed, c)
				if _, ok := visited[h]; ok {
					continue
				}
				visited[h] = struct{}{}
				visits = append(visits, visit{from[i], st.event})
				next, ids = append(next, c), append(ids, uint32(len(visits)-1))
				r.states++
			}
		}
		frontier, from = next, ids
	}
	r.complete = len(frontier) == 0
	return r
}
