//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
)

// record is the command of a container that writes the numbers 1, 2, 3, … to a file, and prints
// each number once it is on disk. A restarted container starts a new file.
const record = `f=0; while [ -e /volume/$f ]; do f=$((f+1)); done; i=0; while i=$((i+1)); do echo $i | dd of=/volume/$f oflag=append conv=notrunc,fsync 2>/dev/null && echo $i; done`

func TestSyncedDataSurvivesANodePowerLoss(t *testing.T) {
	n := newNamespace(t, "a node loses its power while a pod writes: when the node is back, the pod runs again, with all data that was synced")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(strings.Replace(pod("writer", "data"), "trap exit TERM; sleep 365d & wait", "trap exit TERM; ("+record+") & wait", 1))
	n.ready("writer")
	var synced int
	n.eventually("some numbers are written", func(ctx context.Context) error {
		synced = n.printed(ctx, "writer")
		if synced < 20 {
			return fmt.Errorf("%d are written", synced)
		}
		return nil
	})
	node := n.nodeOf("writer")
	require.NoError(t, node.PowerOff())
	start := time.Now()
	require.NoError(t, node.PowerOn(t.Context()))
	n.figure("node ready after %.1f s", time.Since(start).Seconds())
	n.await("pod/writer", "jsonpath={.status.containerStatuses[0].restartCount}=1")
	n.ready("writer")
	n.figure("pod after %.1f s", time.Since(start).Seconds())
	lines := strings.Fields(n.exec("writer", "cat /volume/0"))
	require.GreaterOrEqual(t, len(lines), synced, "synced numbers are lost")
	for i, l := range lines {
		require.Equal(t, strconv.Itoa(i+1), l)
	}
	n.figure("%d writes survived, of which %d were known to be synced", len(lines), synced)
	env.recovered(t)
}

// printed returns the number of lines in a pod's log.
func (n *namespace) printed(ctx context.Context, pod string) int {
	n.t.Helper()
	out, err := n.kubectl.Run(ctx, "", "logs", pod)
	require.NoError(n.t, err)
	return len(strings.Fields(out))
}

func TestDrainedNodeDetachesItsVolumes(t *testing.T) {
	n := newNamespace(t, "a node is drained, and the node plugin is deleted before the pods: it waits until their volumes are unmounted and detached")
	node := env.cluster.Nodes[1].Name
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(onNode(node, pod("user", "data")))
	n.apply(onNode(node, "apiVersion: v1\nkind: Pod\nmetadata: {name: marker}\nspec:\n  volumes: [{name: volume, emptyDir: {}}]\n"+container("  ")))
	n.ready("user")
	n.ready("marker")
	written := n.write("user", "/volume/file")
	env.run(t, "cordon", node)
	t.Cleanup(func() {
		env.run(t, "uncordon", node)
		env.recovered(t)
	})
	plugin := env.run(t, "get", "pod", "--selector=app="+driverDaemonSet, "--field-selector=spec.nodeName="+node, "--output=name")
	env.run(t, "delete", plugin, "--wait=false")
	n.run("delete", "pod", "marker") // terminates like a plugin without the hook
	assert.Equal(t, written, n.sum("user", "/volume/file"))
	assert.Equal(t, plugin, env.run(t, "get", plugin, "--output=name"))

	start := time.Now()
	n.run("delete", "pod", "user")
	n.awaitAdmitted("data")
	env.run(t, "wait", plugin, "--for=delete", rolloutTimeout)
	n.figure("the plugin ended %.1f s after the pod", time.Since(start).Seconds())
	n.apply(onNode(env.cluster.Nodes[0].Name, pod("next", "data")))
	n.ready("next")
	assert.Equal(t, written, n.sum("next", "/volume/file"))
}

const outOfService = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

// The test follows the steps in docs/fencing.md.
func TestLostNodeIsFencedAndUnfenced(t *testing.T) {
	n := newNamespace(t, "a node is lost, fenced and marked as out of service: a StatefulSet's pod moves with its data; the node, when it is back, cleans up and gets no volume until it is unfenced")
	kept, lost := env.cluster.Nodes[0], env.cluster.Nodes[1]
	const prefer = `      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [
        {weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}}]}}
`
	n.apply(fmt.Sprintf(statefulSet, 1, fmt.Sprintf(prefer, lost.Name)+container("      ")))
	n.run("rollout", "status", "statefulset/set", rolloutTimeout)
	require.Equal(t, lost, n.nodeOf("set-0"))
	written := n.write("set-0", "/volume/file")
	n.admits("volume-set-0", lost.Name)
	uid := n.run("get", "pod", "set-0", "--output=jsonpath={.metadata.uid}")

	require.NoError(t, lost.PowerOff())
	t.Cleanup(func() { env.repair(t, lost) })
	start := time.Now()
	env.run(t, "wait", "node/"+lost.Name, "--for=condition=Ready=Unknown", "--timeout=2m")
	n.figure("noticed after %.1f s", time.Since(start).Seconds())
	// If all controller pods are on the lost node, the plugin's error tells the user to delete
	// them.
	n.eventually("the node is fenced", func(context.Context) error {
		_, notes, err := env.runPlugin(t, "fence", lost.Name, "--yes")
		if strings.Contains(notes, "is on a ready node") {
			env.run(t, "delete", "pod", "--selector=app="+driverDeployment, "--field-selector=spec.nodeName="+lost.Name, "--wait=false")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, notes)
		}
		return err
	})
	n.admits("volume-set-0")
	state, err := env.nodeState(t, lost.Name)
	require.ErrorContains(t, err, "the node is not ready, so its node plugin was not queried")
	assert.False(t, state.Ready)
	assert.Nil(t, state.Status)
	require.Len(t, state.Fenced, 1)
	assert.Equal(t, storageServer, state.Fenced[0].Target)
	since, err := time.Parse(time.RFC3339, state.Fenced[0].Since)
	require.NoError(t, err)
	assert.WithinRange(t, since, start.Add(-time.Second), time.Now())

	start = time.Now()
	env.run(t, "taint", "node", lost.Name, outOfService)
	n.eventually("the pod moves", func(ctx context.Context) error {
		node, err := n.kubectl.Run(ctx, "", "get", "pod", "set-0", "--output=jsonpath={.spec.nodeName}")
		if err == nil && node != kept.Name {
			err = fmt.Errorf("it is on %q", node)
		}
		return err
	})
	n.ready("set-0")
	n.figure("pod moved %.1f s after the taint", time.Since(start).Seconds())
	assert.Equal(t, written, n.sum("set-0", "/volume/file"))
	n.admits("volume-set-0", kept.Name)

	folder := "/var/lib/kubelet/pods/" + uid
	require.DirExists(t, lost.Disk(folder), "it is on the disk of the lost node")
	require.NoError(t, lost.PowerOn(t.Context()))
	n.eventually("the node removes what is left of the pod", func(context.Context) error {
		if _, err := os.Stat(lost.Disk(folder)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there (%w)", folder, err)
		}
		return nil
	})
	env.run(t, "taint", "node", lost.Name, outOfService+"-")
	n.apply(claim("later", storageClass, "64Mi", ""))
	n.apply(onNode(lost.Name, pod("later", "later")))
	n.event("later", "FailedAttachVolume", "fenced")
	assert.Equal(t, written, n.sum("set-0", "/volume/file"))
	env.fence(t, "unfence", lost.Name)
	n.ready("later")
	env.recovered(t)
}

// fence fences or unfences a node with the kubectl plugin.
func (e *environment) fence(t *testing.T, command, node string) {
	t.Helper()
	e.plugin(t, command, node, "--yes")
}

// repair makes a node usable again after a test, regardless of the node's state.
func (e *environment) repair(t *testing.T, node *cluster.Node) {
	t.Helper()
	ctx := context.Background()
	if !node.On() {
		assert.NoError(t, node.PowerOn(ctx))
	}
	// fails if the taint does not exist
	_, _ = e.driver.kubectl.Run(ctx, "", "taint", "node", node.Name, outOfService+"-")
	e.fence(t, "unfence", node.Name)
}

// recovered waits until the driver is ready on all nodes.
func (e *environment) recovered(t *testing.T) {
	t.Helper()
	e.run(t, "wait", "node", "--all", "--for=condition=Ready", rolloutTimeout)
	for _, object := range []string{"deployment/" + driverDeployment, "daemonset/" + driverDaemonSet} {
		e.run(t, "rollout", "status", object, rolloutTimeout)
	}
}

func (n *namespace) nodeOf(pod string) *cluster.Node {
	n.t.Helper()
	node, err := env.cluster.Node(n.run("get", "pod", pod, "--output=jsonpath={.spec.nodeName}"))
	require.NoError(n.t, err)
	return node
}
