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

// TestUpstream does not use zones, because most of its tests use a volume on both nodes. It does
// not limit the number of volumes, because its tests run concurrently. Therefore, the suites for
// zones and limits run separately, with another configuration.

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
	n.changeValues(func(values map[string]any) { values["node"].(map[string]any)["maxVolumes"] = 10 })
	n.upstreamSuites(storageClass, "volumeLimits", "    volumeLimits: true\n")
}

// TestUpstreamSnapshotMetadata runs tests that TestUpstream cannot run, because the definition of
// external drivers lacks the namespace where these tests create objects.
func TestUpstreamSnapshotMetadata(t *testing.T) {
	if !*upstream {
		t.Skip("only with ARGS=-upstream")
	}
	n := newNamespace(t, "Kubernetes' own tests of SnapshotMetadata")
	n.serveMetadataService()
	// The SnapshotMetadata tests delete snapshots before they delete the volumes that were restored
	// from those snapshots.
	n.changeValues(func(values map[string]any) {
		values["config"] = map[string]any{"snapshots": map[string]any{"deleteWithClones": "detach"}}
	})
	// Without a focus, Kubernetes skips tests of a feature that clusters may lack.
	specs, err := n.upstreamSuite(storageClass, "").run(n.t.Context(), n.name, "--ginkgo.focus=Snapshot metadata of "+regexp.QuoteMeta(driverName))
	require.NoError(t, err)
	n.countOutcomes(specs)
}

// changeValues upgrades the chart with other values until the test ends.
func (n *namespace) changeValues(change func(values map[string]any)) {
	n.t.Helper()
	n.t.Cleanup(func() {
		env.upgrade(n.t, env.driver.values())
		require.NoError(n.t, env.driver.inService(context.Background()))
	})
	values := env.driver.values()
	change(values)
	env.upgrade(n.t, values)
	require.NoError(n.t, env.driver.inService(n.t.Context()))
}

// upstreamSuite returns the program of Kubernetes' tests, with a class and with additional lines in
// the definition of the driver.
func (n *namespace) upstreamSuite(class, capabilities string) suite {
	n.t.Helper()
	s := suite{dir: n.t.TempDir()}
	s.driver = filepath.Join(s.dir, "driver.yaml")
	require.NoError(n.t, os.WriteFile(s.driver, fmt.Appendf(nil, strings.Replace(definition, storageClass, class, 1)+capabilities, canGrowMounted(n)), 0o600))
	return s
}

// upstreamSuites runs suites of Kubernetes' own tests, with upstreamSuite's class and lines.
func (n *namespace) upstreamSuites(class, names, capabilities string) {
	n.t.Helper()
	s := n.upstreamSuite(class, capabilities)
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
	n.countOutcomes(specs)
}
