//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpstream has no zones, because most of its tests use a volume on both nodes. It does not
// limit the number of volumes, because its tests run concurrently. The suites for both therefore
// run separately, with another configuration.

func TestUpstreamZones(t *testing.T) {
	if !*upstream {
		t.Skip("only with ARGS=-upstream")
	}
	n := newNamespace(t, "Kubernetes' own tests of topology and capacity, with two storage servers in different zones")
	n.useZones(env.cluster.Nodes[0].Name, env.cluster.Nodes[1].Name)
	n.apply(zonalClass) // capacity is published for classes with WaitForFirstConsumer
	t.Cleanup(func() { n.run("delete", "storageclass", "zonal") })
	n.upstreamSuites("zonal", "topology|capacity", "    topology: true\n    capacity: true\n  TopologyKeys: ["+zoneLabel+"]\n")
}

func TestUpstreamLimits(t *testing.T) {
	if !*upstream {
		t.Skip("only with ARGS=-upstream")
	}
	n := newNamespace(t, "Kubernetes' own tests of the number of volumes that a node can have")
	values := env.driver.values()
	t.Cleanup(func() {
		env.upgrade(t, env.driver.values())
		require.NoError(t, env.driver.inService(context.Background()))
	})
	values["node"].(map[string]any)["maxVolumes"] = 10
	env.upgrade(t, values)
	require.NoError(t, env.driver.inService(t.Context()))
	n.upstreamSuites(storageClass, "volumeLimits", "    volumeLimits: true\n")
}

// upstreamSuites runs suites of Kubernetes' own tests with a class, and with lines added to the
// driver's definition.
func (n *namespace) upstreamSuites(class, names, capabilities string) {
	n.t.Helper()
	s := suite{dir: n.t.TempDir()}
	s.driver = filepath.Join(s.dir, "driver.yaml")
	require.NoError(n.t, os.WriteFile(s.driver, fmt.Appendf(nil, strings.Replace(definition, storageClass, class, 1)+capabilities, canGrowMounted(n)), 0o600))
	n.apply(fmt.Sprintf(attributesClass, "upstream", 5000))
	n.t.Cleanup(func() { n.run("delete", "volumeattributesclass", "upstream") })
	all, err := s.run(n.t.Context(), n.name+"-all", "--ginkgo.dry-run")
	require.NoError(n.t, err)
	wanted := regexp.MustCompile(`\] (` + names + `) `)
	var tests []string
	for _, spec := range all {
		if name := spec.name(); spec.State == "passed" && fits(name) && wanted.MatchString(name) {
			tests = append(tests, name)
		}
	}
	require.NotEmpty(n.t, tests)
	specs, err := s.run(n.t.Context(), n.name, focus(tests))
	require.NoError(n.t, err)
	n.judge(specs)
}
