//go:build kubernetes

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// zonal is added to the definition of the driver for tests that need zones, each of which has one of the two nodes: no volume can be
// used on both nodes then, as most other tests want.
const zonal = `    topology: true
    capacity: true
    volumeLimits: true
  TopologyKeys: [` + zoneLabel + `]
`

var ofZones = regexp.MustCompile(`\] (topology|capacity|volumeLimits) `)

// TestUpstreamZones runs those of Kubernetes' own tests that TestUpstream leaves out: of topology, of published capacity, and of the number
// of volumes that a node can have.
func TestUpstreamZones(t *testing.T) {
	if !*upstream {
		t.Skip("only with ARGS=-upstream")
	}
	n := newNamespace(t, "Kubernetes' own tests of topology, capacity and limits, with two storage servers in different zones")
	const maxVolumes = 10
	n.useZones(env.cluster.Nodes[0].Name, env.cluster.Nodes[1].Name, maxVolumes)
	dir := t.TempDir()
	file := filepath.Join(dir, "driver.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, definition+zonal, false), 0o600))
	n.apply(fmt.Sprintf(attributesClass, "upstream", 5000))
	t.Cleanup(func() { n.run("delete", "volumeattributesclass", "upstream") })
	s := suite{driver: file, dir: dir}
	all, err := s.run(t.Context(), "zones-all", "--ginkgo.dry-run")
	require.NoError(t, err)
	var names []string
	for _, spec := range all {
		if name := spec.name(); spec.State == "passed" && fits(name) && ofZones.MatchString(name) {
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names)
	specs, err := s.run(t.Context(), "zones", focus(names))
	require.NoError(t, err)
	n.judge(specs)
}
