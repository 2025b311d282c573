//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

const (
	zoneLabel     = "topology.kubernetes.io/zone"
	anotherServer = "storage-2"
)

// Each storage server can be used from only one zone, and each node is a separate zone. New pods of
// the driver get their zone from the node's label.
func TestVolumesAreCreatedInThePodsZone(t *testing.T) {
	n := newNamespace(t, "two storage servers, each reached from one zone: the volume for a claim with WaitForFirstConsumer is created where its pod can run, a later pod runs where the volume is, and a claim larger than the free space waits with an event; with Immediate, volumes are created on the server that has room, and their pods run in its zone")
	one, two := env.cluster.Nodes[0], env.cluster.Nodes[1]
	n.useZones(one.Name, two.Name)

	n.apply(zonalClass)
	t.Cleanup(func() { n.run("delete", "storageclass", "zonal") })
	n.eventually("the free space of both zones is published", func(ctx context.Context) error {
		return n.published(ctx, "zonal", one.Name, two.Name)
	})

	n.apply(claim("data", "zonal", "64Mi", ""))
	n.event("data", "WaitForFirstConsumer", "waiting for first consumer")
	n.apply(onNode(two.Name, pod("first", "data")))
	n.ready("first")
	assert.Contains(t, n.handle("data"), anotherServer)
	written := n.write("first", "/volume/file")
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, two, n.nodeOf("second"), "the volume can only be reached from there")
	assert.Equal(t, written, n.sum("second", "/volume/file"))

	n.apply(claim("other", "zonal", "64Mi", ""))
	n.apply(onNode(one.Name, pod("third", "other")))
	n.ready("third")
	assert.Contains(t, n.handle("other"), storageServer)

	n.apply(claim("large", "zonal", "1Ti", ""))
	n.apply(pod("fourth", "large"))
	n.event("fourth", "FailedScheduling", "did not have enough free storage")
	assert.Equal(t, "Pending", n.run("get", "pvc", "large", "--output=jsonpath={.status.phase}"))

	n.immediate(map[string]string{storageServer: one.Name, anotherServer: two.Name})
}

// immediate creates volumes before pods need them, on two storage servers that each have room for
// only one volume. zones maps the servers to their zones. Each zone is a node.
func (n *namespace) immediate(zones map[string]string) {
	n.t.Helper()
	const size = "40Gi" // of 64 GiB
	server := func(claim string) string {
		name, _, _ := strings.Cut(n.handle(claim), ":")
		return name
	}
	n.apply(claim("early-1", storageClass, size, ""))
	n.bound("early-1")
	n.apply(claim("early-2", storageClass, size, ""))
	n.bound("early-2")
	first, second := server("early-1"), server("early-2")
	assert.ElementsMatch(n.t, []string{storageServer, anotherServer}, []string{first, second}, "the second volume is where there is room")
	n.apply(claim("early-3", storageClass, size, ""))
	for name := range zones {
		n.event("early-3", "ProvisioningFailed", name)
	}
	n.event("early-3", "ProvisioningFailed", "ResourceExhausted")

	n.apply(claim("copy", storageClass, size, "  dataSource: {kind: PersistentVolumeClaim, name: early-1}\n"))
	// a copy must be on the same server as its source
	n.event("copy", "ProvisioningFailed", "ResourceExhausted")
	n.run("delete", "pvc", "copy")

	for _, c := range []string{"early-1", "early-2"} {
		n.apply(pod("of-"+c, c))
	}
	for _, c := range []string{"early-1", "early-2"} {
		n.ready("of-" + c)
		assert.Equal(n.t, zones[server(c)], n.nodeOf("of-"+c).Name, "the pod runs where its volume can be reached")
		n.write("of-"+c, "/volume/file")
	}
	n.run("delete", "pod", "of-early-1")
	n.run("delete", "pvc", "early-1")
	start := time.Now()
	n.bound("early-3")
	n.figure("a claim that waited for room was bound %.1f s after there was some", time.Since(start).Seconds())
	assert.Equal(n.t, first, server("early-3"))
}

func TestClaimLargerThanEachServerStaysPending(t *testing.T) {
	n := parallelNamespace(t, "a claim that is larger than any lvstore waits, and an event states how much space is free")
	n.apply(claim("large", storageClass, "1Ti", ""))
	n.event("large", "ProvisioningFailed", "ResourceExhausted")
	n.event("large", "ProvisioningFailed", "lvs0")
	assert.Equal(t, "Pending", n.run("get", "pvc", "large", "--output=jsonpath={.status.phase}"))
}

var zonalClass = strings.Replace(xfsClass("zonal"), "fstype: xfs", "fstype: ext4", 1) + "volumeBindingMode: WaitForFirstConsumer\n"

// useZones makes each node its own zone, with a storage server that only it can use, until the
// test ends.
func (n *namespace) useZones(one, two string) {
	n.t.Helper()
	ctx := context.Background()
	start := time.Now()
	second, err := env.driver.server.StartAnother(ctx, anotherServer, "9010", filepath.Join(env.driver.dir, storageFolder, "second"))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { assert.NoError(n.t, second.Stop()) })
	for _, node := range []string{one, two} {
		n.run("label", "node", node, zoneLabel+"="+node)
		n.t.Cleanup(func() { n.run("label", "node", node, zoneLabel+"-") })
	}
	plain := env.driver.values()
	n.t.Cleanup(func() {
		n.run("delete", "pods,pvc", "--all")
		n.eventually("the volumes are gone", func(ctx context.Context) error { return noVolumeOf(ctx, n.name) })
		objects, err := second.Objects(ctx)
		assert.NoError(n.t, err)
		assert.Empty(n.t, objects, "left on the second storage server")
		env.reconfigure(n.t, plain)
	})
	values := env.driver.values()
	first := env.driver.server.Config(caFile)
	first["topology"] = map[string]any{zoneLabel: one}
	other := second.Config(caFile)
	other["topology"] = map[string]any{zoneLabel: two}
	values["storageServers"] = []any{first, other}
	values["credentials"] = map[string]any{"accounts": []any{env.driver.server.Account(), second.Account()}}
	values["ca"] = map[string]any{"certificates": env.driver.server.CA() + second.CA()}
	values["zones"], values["storageCapacity"] = true, true
	// the binding mode is immutable
	values["storageClass"] = map[string]any{"volumeBindingMode": "Immediate"}
	node := values["node"].(map[string]any)
	data := storage.DataDir(filepath.Join(env.driver.dir, storageFolder, "second"))
	node["extraVolumes"] = append(node["extraVolumes"].([]any), map[string]any{"name": "second-target", "hostPath": map[string]any{"path": data, "type": "Directory"}})
	node["extraVolumeMounts"] = append(node["extraVolumeMounts"].([]any), map[string]any{"name": "second-target", "mountPath": data})
	env.reconfigure(n.t, values)
	env.run(n.t, "wait", "csinode", "--all", "--for=jsonpath={.spec.drivers[0].topologyKeys[0]}="+zoneLabel, rolloutTimeout)
	n.figure("zones in use after %.1f s", time.Since(start).Seconds())
}

// reconfigure upgrades the chart and restarts the controller, which is necessary when topology is
// enabled or disabled.
func (e *environment) reconfigure(t *testing.T, values map[string]any) {
	t.Helper()
	e.upgrade(t, values)
	e.run(t, "rollout", "restart", "deployment/"+driverDeployment)
	require.NoError(t, e.driver.inService(context.Background()))
}

// published returns an error unless the free capacity for a class has been published for the given
// zones.
func (n *namespace) published(ctx context.Context, class string, zones ...string) error {
	text, err := env.driver.kubectl.Run(ctx, "", "get", "csistoragecapacities", "--output=json")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			StorageClassName string
			Capacity         string
			NodeTopology     struct{ MatchLabels map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return err
	}
	found := map[string]string{}
	for _, c := range list.Items {
		if c.StorageClassName == class {
			found[c.NodeTopology.MatchLabels[zoneLabel]] = c.Capacity
		}
	}
	for _, z := range zones {
		if found[z] == "" || found[z] == "0" {
			return fmt.Errorf("published: %v", found)
		}
	}
	return nil
}

// handle returns the driver's id of a claim's volume.
func (n *namespace) handle(claim string) string {
	n.t.Helper()
	return n.run("get", "pv", n.volume(claim), "--output=jsonpath={.spec.csi.volumeHandle}")
}
