package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
)

func named(targets []Target) (names []string) {
	for _, t := range targets {
		names = append(names, t.Name)
	}
	return names
}

func zone(z string) map[string]string { return map[string]string{"topology.kubernetes.io/zone": z} }

func someTargets(n int) (targets []Target) {
	for i := range n {
		targets = append(targets, Target{Name: fmt.Sprintf("t%d", i)})
	}
	return targets
}

func TestTargetsMatchTheClass(t *testing.T) {
	configured := []Target{{Name: "t0", Labels: map[string]string{"disk": "nvme"}}, {Name: "t1"}}
	got, err := Targets(configured, class.Class{})
	require.NoError(t, err)
	assert.Equal(t, configured, got)
	got, err = Targets(configured, class.Class{Targets: []string{"t1"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"t1"}, named(got))
	got, err = Targets(configured, class.Class{TargetLabels: map[string]string{"disk": "nvme"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"t0"}, named(got))
	_, err = Targets(configured, class.Class{Targets: []string{"t0", "t9"}})
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, `"t9"`)
	_, err = Targets(configured, class.Class{TargetLabels: map[string]string{"disk": "hdd"}})
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, "disk=hdd")
}

// The number of candidates for a name does not depend on the number of targets, and the candidates
// do not depend on the order of the targets in the configuration.
func TestChoiceDependsOnlyOnNameAndConfiguration(t *testing.T) {
	count := map[string]int{}
	targets := someTargets(100)
	reversed := slices.Clone(targets)
	slices.Reverse(reversed)
	for i := range 1000 {
		name := fmt.Sprintf("pvc-%d", i)
		asked, candidates := DefaultChoice.Of(targets, name)
		require.Len(t, asked, 3)
		require.Equal(t, asked[:2], candidates)
		again, _ := DefaultChoice.Of(reversed, name)
		require.Equal(t, asked, again)
		for _, c := range candidates {
			count[c.Name]++
		}
	}
	assert.Len(t, count, 100)
	for name, n := range count {
		assert.InDelta(t, 20, n, 20, name)
	}
	asked, candidates := DefaultChoice.Of(targets[:1], "pvc-1")
	assert.Equal(t, targets[:1], asked)
	assert.Equal(t, targets[:1], candidates)
}

// A volume that an unfinished call has created is still found after a target has been added.
func TestVolumeIsFoundAfterATargetIsAdded(t *testing.T) {
	old := someTargets(7)
	moved := 0
	for i := range 1000 {
		name := fmt.Sprintf("pvc-%d", i)
		_, before := DefaultChoice.Of(old, name)
		asked, after := DefaultChoice.Of(append(slices.Clone(old), Target{Name: "added"}), name)
		for _, b := range before {
			require.Contains(t, named(asked), b.Name)
		}
		if slices.Contains(named(after), "added") {
			moved++
		}
	}
	assert.InDelta(t, 250, moved, 60, "the added target takes its share of the names")
}

func TestChoiceHasCandidatesInEachTopology(t *testing.T) {
	var targets []Target
	for i := range 12 {
		targets = append(targets, Target{Name: fmt.Sprintf("t%d", i), Topology: zone(string(rune('a' + i%3)))})
	}
	asked, candidates := Choice{Candidates: 2, Margin: 1}.Of(targets, "pvc-1")
	assert.Len(t, asked, 9)
	assert.Len(t, candidates, 6)
	for _, z := range []string{"a", "b", "c"} {
		there, err := Accessibility{Requisite: []map[string]string{zone(z)}}.Filter(candidates)
		require.NoError(t, err)
		assert.Len(t, there, 2)
	}
}

func TestTargetsFollowTheRequestedTopology(t *testing.T) {
	inA, inB, everywhere := Target{Name: "a", Topology: zone("a")}, Target{Name: "b", Topology: zone("b")}, Target{Name: "everywhere"}
	all := []Target{inA, inB, everywhere}
	nodeInA := map[string]string{"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r", "kubernetes.io/hostname": "n1"}
	for name, c := range map[string]struct {
		requisite []map[string]string
		want      []string
	}{
		"nothing is required":             {nil, []string{"a", "b", "everywhere"}},
		"one zone":                        {[]map[string]string{zone("a")}, []string{"a", "everywhere"}},
		"a node with more labels":         {[]map[string]string{nodeInA}, []string{"a", "everywhere"}},
		"two zones":                       {[]map[string]string{zone("b"), zone("a")}, []string{"a", "b", "everywhere"}},
		"a topology that leaves it open":  {[]map[string]string{{"topology.kubernetes.io/region": "r"}}, []string{"everywhere"}},
		"a zone that has only the common": {[]map[string]string{zone("z")}, []string{"everywhere"}},
	} {
		got, err := Accessibility{Requisite: c.requisite}.Filter(all)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, named(got), name)
	}
	_, err := Accessibility{Requisite: []map[string]string{zone("z"), nodeInA}}.Filter([]Target{inB})
	require.ErrorIs(t, err, ErrNoTopology)
	assert.ErrorContains(t, err, "zone=z")
	preferred := Accessibility{Preferred: []map[string]string{zone("b"), zone("a")}}
	assert.Equal(t, []int{1, 0, 0, 2}, []int{preferred.Rank(inA), preferred.Rank(inB), preferred.Rank(everywhere), preferred.Rank(Target{Topology: zone("c")})})
}
