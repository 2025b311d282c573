package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/class"
)

// ErrNoTopology means that no target is accessible from the topologies requested for a volume.
var ErrNoTopology = errors.New("no target is accessible from the requested topology")

// A Target describes a target in config.json.
type Target struct {
	Name string
	// Topology contains the segments that a node must have to reach the target, such as its zone.
	// If it is empty, every node can reach the target.
	Topology map[string]string
	// Labels are the labels that classes use to select targets.
	Labels map[string]string
}

// Targets returns the configured targets that the class allows. Errors wrap [class.ErrParameter].
func Targets(configured []Target, c class.Class) ([]Target, error) {
	for _, name := range c.Targets {
		if !slices.ContainsFunc(configured, func(t Target) bool { return t.Name == name }) {
			return nil, fmt.Errorf("%w: target is %q, which is not in config.json", class.ErrParameter, name)
		}
	}
	var allowed []Target
	for _, t := range configured {
		if c.Allows(t.Name, t.Labels) {
			allowed = append(allowed, t)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("%w: no target in config.json has the labels in targetLabels: %s", class.ErrParameter, segments(c.TargetLabels))
	}
	return allowed, nil
}

// A Choice configures how many targets in each topology are chosen for the volume with a particular
// name.
type Choice struct {
	// Candidates is the number of targets on which the volume may be created.
	Candidates int
	// Margin is the number of additional targets that are queried for the volume. A new target in
	// config.json becomes a candidate for some names, replacing another target. If at most Margin
	// targets are added at a time, a volume that an unfinished call has created is still found.
	Margin int
}

// DefaultChoice is the default. It provides an alternative to a full target, and allows targets to
// be added one at a time.
var DefaultChoice = Choice{Candidates: 2, Margin: 1}

// Of returns the targets that are queried for a volume's name before the volume is created, and the
// candidates among them. In each topology, these are the targets with the highest pseudorandom
// numbers (rendezvous hashing). The numbers depend only on the name and the configuration, so each
// retry of a call queries the same targets, and no other target needs to be reachable.
func (c Choice) Of(targets []Target, volume string) (asked, candidates []Target) {
	highest := slices.SortedFunc(slices.Values(targets), func(a, b Target) int {
		return cmp.Or(cmp.Compare(draw(b.Name, volume), draw(a.Name, volume)), cmp.Compare(a.Name, b.Name))
	})
	seen := map[string]int{}
	for _, t := range highest {
		n := seen[segments(t.Topology)]
		seen[segments(t.Topology)]++
		if n < c.Candidates+c.Margin {
			asked = append(asked, t)
		}
		if n < c.Candidates {
			candidates = append(candidates, t)
		}
	}
	return asked, candidates
}

// An Accessibility contains the topologies from which a volume must be accessible. If there are
// requisite topologies, the volume must be accessible from one of them. Earlier preferred
// topologies take precedence over later preferred topologies.
type Accessibility struct {
	Requisite, Preferred []map[string]string
}

// Filter returns the targets that are accessible from a requisite topology. Errors wrap
// [ErrNoTopology].
func (a Accessibility) Filter(targets []Target) ([]Target, error) {
	if len(a.Requisite) == 0 {
		return targets, nil
	}
	var reached []Target
	for _, t := range targets {
		if slices.ContainsFunc(a.Requisite, t.isAccessibleFrom) {
			reached = append(reached, t)
		}
	}
	if len(reached) == 0 {
		var requested []string
		for _, r := range a.Requisite {
			requested = append(requested, segments(r))
		}
		return nil, fmt.Errorf("%w: %s: compare topology in config.json with the labels of the nodes", ErrNoTopology, strings.Join(requested, " or "))
	}
	return reached, nil
}

// Rank returns the index of the first preferred topology from which the target is accessible. If
// there is none, it returns the number of preferred topologies.
func (a Accessibility) Rank(t Target) int {
	if i := slices.IndexFunc(a.Preferred, t.isAccessibleFrom); i >= 0 {
		return i
	}
	return len(a.Preferred)
}

// isAccessibleFrom reports whether all nodes of the topology can reach the target.
func (t Target) isAccessibleFrom(topology map[string]string) bool {
	for key, value := range t.Topology {
		if topology[key] != value {
			return false
		}
	}
	return true
}

// segments returns the labels as a sorted string KEY=VALUE,….
func segments(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}
