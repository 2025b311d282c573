package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// A Placement configures how targets and lvstores are chosen for new volumes, and how full they may
// become. All keys have defaults.
type Placement struct {
	// Candidates is the number of targets in each topology that may get the volume with a given
	// name; the default is 2.
	Candidates int `json:"candidates,omitzero"`
	// Margin is the number of further targets that are asked whether they have the volume; the
	// default is 1. While volumes are being created, up to Margin targets can be added to nodes at
	// a time.
	Margin *int `json:"margin,omitzero"`
	// ThinOvercommit limits the total size of an lvstore's volumes, as a multiple of the lvstore's
	// size. With the default, 1, thin volumes alone cannot fill the lvstore.
	ThinOvercommit float64 `json:"thinOvercommit,omitzero"`
	// ReservePercent is the percentage of an lvstore that new volumes leave free; the default is 5.
	ReservePercent *float64 `json:"reservePercent,omitzero"`
	// TargetTimeout limits how long one target may take to list its lvstores and volumes; the
	// default is 10s.
	TargetTimeout string `json:"targetTimeout,omitzero"`
}

// The defaults of Placement.
const (
	defaultOvercommit     = 1
	defaultReservePercent = 5
	defaultTargetTimeout  = "10s"
)

func (p *Placement) setDefaults() {
	if p.Candidates == 0 {
		p.Candidates = placement.DefaultChoice.Candidates
	}
	if p.Margin == nil {
		p.Margin = new(placement.DefaultChoice.Margin)
	}
	if p.ThinOvercommit == 0 {
		p.ThinOvercommit = defaultOvercommit
	}
	if p.ReservePercent == nil {
		p.ReservePercent = new(float64(defaultReservePercent))
	}
	if p.TargetTimeout == "" {
		p.TargetTimeout = defaultTargetTimeout
	}
}

func (p *Placement) check() (problems []error) {
	bad := func(key string, value any, want string) {
		problems = append(problems, fmt.Errorf("placement: %s is %v; it must be %s", key, value, want))
	}
	if p.Candidates < 1 {
		bad("candidates", p.Candidates, "1 or more")
	}
	if *p.Margin < 0 {
		bad("margin", *p.Margin, "0 or more")
	}
	if !(p.ThinOvercommit > 0 && p.ThinOvercommit <= 1000) {
		bad("thinOvercommit", p.ThinOvercommit, "more than 0 and at most 1000: 2 lets the volumes of an lvstore be twice as large as it is")
	}
	if !(*p.ReservePercent >= 0 && *p.ReservePercent < 100) {
		bad("reservePercent", *p.ReservePercent, "0 or more and less than 100")
	}
	if d, err := time.ParseDuration(p.TargetTimeout); err != nil || d < time.Millisecond || d > time.Minute {
		bad("targetTimeout", fmt.Sprintf("%q", p.TargetTimeout), "a time like 10s, at most 1m")
	}
	return problems
}

// Choice returns the settings that control how targets are chosen.
func (p Placement) Choice() placement.Choice {
	p.setDefaults()
	return placement.Choice{Candidates: p.Candidates, Margin: *p.Margin}
}

// Space returns the limits on how full lvstores may become.
func (p Placement) Space() volume.Space {
	p.setDefaults()
	return volume.Space{Overcommit: p.ThinOvercommit, Reserve: *p.ReservePercent / 100}
}

// Timeout returns the time limit for one target to list its lvstores and volumes.
func (p Placement) Timeout() time.Duration {
	p.setDefaults()
	d, _ := time.ParseDuration(p.TargetTimeout) // cannot fail: check has parsed it
	return d
}

// checkTopology checks the topologies and labels of targets. All topologies must have the same
// keys. Otherwise, the volumes of a target without a zone would be accessible from all zones.
func checkTopology(nodes []Target) (problems []error) {
	keys := slices.Sorted(maps.Keys(nodes[0].Topology))
	for i, n := range nodes {
		bad := func(key string, err error) {
			problems = append(problems, fmt.Errorf("nodes[%d] (%s): %s: %w", i, n.Name, key, err))
		}
		if !slices.Equal(slices.Sorted(maps.Keys(n.Topology)), keys) {
			bad("topology", errors.New("its keys differ from those of nodes[0]: use the same keys for each target"))
		}
		if err := request.CheckTopology(n.Topology); err != nil {
			bad("topology", err)
		}
		for key, value := range n.Labels {
			if key == "" || value == "" {
				bad("labels", errors.New("a label's key and value must not be empty"))
			}
		}
	}
	return problems
}

// PlacementTargets converts the targets to the type of package placement.
func (c *Config) PlacementTargets() []placement.Target {
	targets := make([]placement.Target, len(c.Nodes))
	for i, n := range c.Nodes {
		targets[i] = placement.Target{Name: n.Name, Topology: n.Topology, Labels: n.Labels}
	}
	return targets
}

// HasTopology reports whether some targets cannot be reached from every node.
func (c *Config) HasTopology() bool { return len(c.Nodes[0].Topology) > 0 }
