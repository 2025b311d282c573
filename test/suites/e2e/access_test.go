//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadWriteOnceVolumeMovesBetweenNodes(t *testing.T) {
	n := parallelNamespace(t, "a second pod on another node gets a Multi-Attach error, and gets the volume after the first pod has ended")
	one, two := env.cluster.Nodes[0].Name, env.cluster.Nodes[1].Name
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(onNode(one, pod("first", "data")))
	n.ready("first")
	written := n.write("first", "/volume/file")
	n.apply(onNode(two, pod("second", "data")))
	n.event("second", "FailedAttachVolume", "Multi-Attach error")
	n.admits("data", one)
	n.run("delete", "pod", "first")
	start := time.Now()
	n.ready("second")
	n.figure("%.1f s after the first pod's end", time.Since(start).Seconds())
	assert.Equal(t, written, n.sum("second", "/volume/file"))
	n.admits("data", two)
}

func TestReadWriteOncePodVolumeHasOnePodAtATime(t *testing.T) {
	n := parallelNamespace(t, "a second pod on the same node waits while a pod has a ReadWriteOncePod volume, and gets it after that pod has ended")
	node := env.cluster.Nodes[0].Name
	n.apply(claimOf("data", "ReadWriteOncePod", "Filesystem", ""))
	n.apply(onNode(node, pod("first", "data")))
	n.ready("first")
	written := n.write("first", "/volume/file")
	n.apply(onNode(node, pod("second", "data")))
	n.event("second", "FailedScheduling", "ReadWriteOncePod")
	n.run("delete", "pod", "first")
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestReadWriteManyVolumeIsSharedByNodes(t *testing.T) {
	n := parallelNamespace(t, "pods on two nodes read what the other one writes to a raw block volume; when one pod ends, the other keeps writing")
	one, two := env.cluster.Nodes[0].Name, env.cluster.Nodes[1].Name
	n.apply(claimOf("shared", "ReadWriteMany", "Block", ""))
	n.apply(onNode(one, blockPod("one", "shared")))
	n.apply(onNode(two, blockPod("two", "shared")))
	n.ready("one")
	n.ready("two")
	n.admits("shared", one, two)
	exchange := func(from, to string) {
		t.Helper()
		assert.Equal(t, n.exec(from, fmt.Sprintf(writeDirectly, from)), n.exec(to, readDirectly))
	}
	exchange("one", "two")
	exchange("two", "one")
	n.run("delete", "pod", "one")
	n.awaitAdmitted("shared", two)
	exchange("two", "two")
}

func TestReadOnlyManyVolumeCannotBeWritten(t *testing.T) {
	n := parallelNamespace(t, "pods on two nodes read a copy of a volume concurrently, and neither can write")
	n.apply(claim("source", storageClass, "64Mi", ""))
	n.apply(pod("writer", "source"))
	n.ready("writer")
	written := n.write("writer", "/volume/file")
	n.run("delete", "pod", "writer")
	n.awaitAdmitted("source") // the volume is no longer used by any pod
	n.apply(claimOf("copy", "ReadOnlyMany", "Filesystem", "  dataSource: {kind: PersistentVolumeClaim, name: source}\n"))
	for _, node := range env.cluster.Nodes {
		n.apply(onNode(node.Name, pod("on-"+node.Name, "copy")))
	}
	var names []string
	for _, node := range env.cluster.Nodes {
		n.ready("on-" + node.Name)
		names = append(names, node.Name)
		assert.Equal(t, written, n.sum("on-"+node.Name, "/volume/file"))
		assert.Contains(t, n.exec("on-"+node.Name, "touch /volume/new 2>&1 || true"), "Read-only file system")
	}
	n.admits("copy", names...)
}

const (
	// readDirectly prints the checksum of a device's data, bypassing the node's cache.
	// writeDirectly writes new data first.
	readDirectly  = "dd if=/dev/volume bs=1M count=4 iflag=direct 2>/dev/null | sha256sum | cut -c1-64"
	writeDirectly = "dd if=/dev/urandom of=/tmp/%[1]s bs=1M count=4 2>/dev/null; dd if=/tmp/%[1]s of=/dev/volume bs=1M oflag=direct 2>/dev/null; " + readDirectly
)

// claimOf returns a 64 MiB claim with an access mode and a volume mode. source is the YAML of its
// dataSource and may be empty.
func claimOf(name, access, mode, source string) string {
	return strings.Replace(claim(name, storageClass, "64Mi", source), "accessModes: [ReadWriteOnce]", "volumeMode: "+mode+"\n  accessModes: ["+access+"]", 1)
}

// onNode changes a pod so that it runs on a node.
func onNode(node, pod string) string {
	return strings.Replace(pod, "\nspec:\n", "\nspec:\n  nodeSelector: {kubernetes.io/hostname: "+node+"}\n", 1)
}

// blockPod returns a pod with a claim's device at /dev/volume. The pod runs as root, which owns the
// device.
func blockPod(name, claim string) string {
	return strings.NewReplacer(
		"{runAsNonRoot: true, runAsUser: 65534, fsGroup: 65534}", "{runAsUser: 0}",
		"volumeMounts:", "volumeDevices:", "mountPath: /volume", "devicePath: /dev/volume",
	).Replace(pod(name, claim))
}

// event waits for an event on a pod or claim whose message contains a string.
func (n *namespace) event(object, reason, text string) {
	n.t.Helper()
	n.eventually("event "+reason+" of "+object, func(ctx context.Context) error {
		messages, err := n.kubectl.Run(ctx, "", "get", "events", "--field-selector=involvedObject.name="+object+",reason="+reason, "--output=jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(messages, text) {
			err = fmt.Errorf("%q is not in %q", text, messages)
		}
		return err
	})
}

// admitted returns the nodes that have access to a claim's volume on the target.
func (n *namespace) admitted(ctx context.Context, claim string) ([]string, error) {
	volume, err := n.kubectl.Run(ctx, "", "get", "pvc", claim, "--output=jsonpath={.spec.volumeName}")
	if err != nil {
		return nil, err
	}
	handle, err := n.kubectl.Run(ctx, "", "get", "pv", volume, "--output=jsonpath={.spec.csi.volumeHandle}")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, node := range env.cluster.Nodes {
		names = append(names, node.Name)
	}
	all, err := env.driver.server.Admitted(ctx, names...)
	for export, nodes := range all {
		if strings.HasSuffix(export, handle[strings.LastIndexByte(handle, ':')+1:]) {
			return nodes, err
		}
	}
	return nil, err
}

// admits requires that exactly the given nodes have access to a claim's volume.
func (n *namespace) admits(claim string, nodes ...string) {
	n.t.Helper()
	now, err := n.admitted(context.Background(), claim)
	require.NoError(n.t, err)
	assert.ElementsMatch(n.t, nodes, now, "nodes that the target admits")
}

// awaitAdmitted waits until exactly the given nodes have access to a claim's volume.
func (n *namespace) awaitAdmitted(claim string, nodes ...string) {
	n.t.Helper()
	n.eventually("the target admits only "+strings.Join(nodes, ", "), func(ctx context.Context) error {
		now, err := n.admitted(ctx, claim)
		if err == nil && strings.Join(now, ",") != strings.Join(nodes, ",") {
			err = fmt.Errorf("it admits %v", now)
		}
		return err
	})
}
