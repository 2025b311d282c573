//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPodDataSurvivesThePod(t *testing.T) {
	n := parallelNamespace(t, "the manual's example: claim bound, pod writes as non-root; the data survives the pod")
	start := time.Now()
	n.example("testpod.yaml")
	n.bound("spdkcsi-pvc")
	n.figure("bound after %.1f s", time.Since(start).Seconds())
	n.ready("spdkcsi-test")
	n.figure("running after %.1f s", time.Since(start).Seconds())
	written := n.write("spdkcsi-test", "/spdkvol/file")
	n.run("delete", "pod", "spdkcsi-test")
	n.example("testpod.yaml")
	n.ready("spdkcsi-test")
	assert.Equal(t, written, n.sum("spdkcsi-test", "/spdkvol/file"))
}

func TestRawBlockDataSurvivesThePod(t *testing.T) {
	n := parallelNamespace(t, "the manual's example of a raw block volume: the pod writes to the device; the data survives the pod")
	n.example("raw-block.yaml")
	n.ready("spdkcsi-test-block")
	written := n.write("spdkcsi-test-block", "/dev/spdkvol")
	n.run("delete", "pod", "spdkcsi-test-block")
	n.example("raw-block.yaml")
	n.ready("spdkcsi-test-block")
	assert.Equal(t, written, n.sum("spdkcsi-test-block", "/dev/spdkvol"))
}

func TestMountedXFSVolumeIsExpanded(t *testing.T) {
	n := parallelNamespace(t, "an XFS volume grows from 320 to 640 MiB while a pod writes to it")
	n.apply(xfsClass("expansion"))
	t.Cleanup(func() { n.run("delete", "storageclass", "expansion") })
	n.apply(claim("data", "expansion", "320Mi", ""))
	n.apply(pod("writer", "data"))
	n.ready("writer")
	before := n.kib("writer")
	written := n.write("writer", "/volume/file")
	start := time.Now()
	n.run("patch", "pvc", "data", "--patch", `{"spec":{"resources":{"requests":{"storage":"640Mi"}}}}`)
	n.await("pvc/data", "jsonpath={.status.capacity.storage}=640Mi")
	n.figure("%.1f s", time.Since(start).Seconds())
	assert.Greater(t, n.kib("writer"), before+300*1024)
	assert.Equal(t, written, n.sum("writer", "/volume/file"))
}

func TestSnapshotsAndClonesHaveTheRightData(t *testing.T) {
	n := parallelNamespace(t, "the manual's examples: a snapshot is restored with its data from that time, and a clone has the current data")
	n.example("testpod.yaml")
	n.ready("spdkcsi-test")
	first := n.write("spdkcsi-test", "/spdkvol/file")
	start := time.Now()
	n.example("snapshot.yaml")
	n.await("volumesnapshot/spdkcsi-snapshot", "jsonpath={.status.readyToUse}=true")
	n.figure("snapshot %.1f s", time.Since(start).Seconds())
	second := n.write("spdkcsi-test", "/spdkvol/file")
	require.NotEqual(t, first, second)
	n.run("delete", "pod", "spdkcsi-test")
	n.example("restore.yaml")
	n.example("clone.yaml")
	n.apply(pod("restored", "spdkcsi-pvc-restored"))
	n.apply(pod("cloned", "spdkcsi-pvc-clone"))
	n.ready("restored")
	n.ready("cloned")
	assert.Equal(t, first, n.sum("restored", "/volume/file"))
	assert.Equal(t, second, n.sum("cloned", "/volume/file"))
	// A snapshot cannot be deleted while volumes depend on it, so these volumes are deleted first.
	n.run("delete", "pod", "restored", "cloned")
	n.run("delete", "pvc", "spdkcsi-pvc-restored", "spdkcsi-pvc-clone")
	n.run("delete", "volumesnapshot", "spdkcsi-snapshot", "--timeout=4m")
}

const statefulSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  replicas: %d
  podManagementPolicy: Parallel
  serviceName: set
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec:
%s  volumeClaimTemplates:
    - metadata: {name: volume}
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: ` + storageClass + `
        resources: {requests: {storage: 64Mi}}
`

func TestStatefulSetPodsKeepTheirData(t *testing.T) {
	const replicas = 10
	n := parallelNamespace(t, "a StatefulSet with 10 replicas: each keeps its own data when all pods are deleted")
	manifest := fmt.Sprintf(statefulSet, replicas, container("      "))
	roll := func(what string) {
		start := time.Now()
		n.apply(manifest)
		n.run("rollout", "status", "statefulset/set", "--timeout=6m")
		n.figure("%s %.1f s", what, time.Since(start).Seconds())
	}
	roll("created")
	for i := range replicas {
		n.exec(fmt.Sprint("set-", i), fmt.Sprintf("echo %d > /volume/name; sync", i))
	}
	n.run("delete", "statefulset", "set", "--cascade=foreground", "--timeout=4m")
	roll("again")
	for i := range replicas {
		assert.Equal(t, fmt.Sprint(i), n.exec(fmt.Sprint("set-", i), "cat /volume/name"))
	}
}

func TestClaimWaitsForTheRightPassword(t *testing.T) {
	n := disturbingNamespace(t, "with a wrong password a claim waits and an event says why; when the Secret is corrected, it is bound")
	right := env.driver.values()
	wrong := maps.Clone(right)
	account := env.driver.server.Account()
	account["password"] = "wrong"
	wrong["credentials"] = map[string]any{"accounts": []any{account}}
	t.Cleanup(func() { env.upgrade(t, right) })
	env.upgrade(t, wrong)
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.eventually("an event about the claim", func(ctx context.Context) error {
		message, err := n.kubectl.Run(ctx, "", "get", "events", "--field-selector=involvedObject.name=data,reason=ProvisioningFailed", "--output=jsonpath={.items[*].message}")
		if err == nil && message == "" {
			err = fmt.Errorf("no event")
		}
		if err == nil {
			assert.Contains(t, message, "authentication failed")
		}
		return err
	})
	assert.Equal(t, "Pending", n.run("get", "pvc", "data", "--output=jsonpath={.status.phase}"))
	start := time.Now()
	env.upgrade(t, right)
	n.bound("data")
	n.figure("bound %.1f s after the Secret was corrected", time.Since(start).Seconds())
}
