//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPodKeepsItsVolumeWhenTheNodePluginIsDeleted(t *testing.T) {
	n := parallelNamespace(t, "the node plugin's pods are deleted: a pod keeps its volume and can end, and the next pod can start; a node that gets the startup taint meanwhile loses it again")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	start := time.Now()
	env.run(t, "taint", "node", env.cluster.Nodes[0].Name, startupTaint+"=:NoSchedule")
	env.run(t, "delete", "pod", "--selector=app="+driverDaemonSet)
	assert.Equal(t, written, n.sum("first", "/volume/file"), "while the plugin starts")
	env.run(t, "rollout", "status", "daemonset/"+driverDaemonSet, rolloutTimeout)
	n.figure("plugin back after %.1f s", time.Since(start).Seconds())
	n.eventually("the taint is removed", func(ctx context.Context) error {
		taints, err := n.kubectl.Run(ctx, "", "get", "nodes", "--output=jsonpath={.items[*].spec.taints}")
		if err == nil && taints != "" {
			err = errors.New(taints)
		}
		return err
	})
	written = n.write("first", "/volume/file")
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestPodKeepsItsVolumeWhenKubeletIsKilled(t *testing.T) {
	n := newNamespace(t, "kubelet is killed and restarted: a pod keeps its volume and can end, and the next pod can start")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	node := n.nodeOf("first")
	require.NoError(t, node.Kubelet.Kill())
	require.NoError(t, node.StartKubelet(t.Context()))
	n.eventually("the pod responds", func(ctx context.Context) error {
		_, err := n.kubectl.Run(ctx, "", "exec", "first", "--", "true")
		return err
	})
	assert.Equal(t, written, n.sum("first", "/volume/file"))
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestVolumesWorkWithoutTheProxy(t *testing.T) {
	n := disturbingNamespace(t, "the proxy is stopped: a pod keeps writing, and a claim waits; when the proxy is back, the claim is bound and the pod can end")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("writer", "data"))
	n.ready("writer")
	require.NoError(t, env.driver.server.StopProxy())
	back := false
	t.Cleanup(func() {
		if !back {
			require.NoError(t, env.driver.server.StartProxy(context.Background()))
		}
	})
	written := n.write("writer", "/volume/file")
	n.apply(claim("later", storageClass, "64Mi", ""))
	n.eventually("an event about the claim", func(ctx context.Context) error {
		message, err := n.kubectl.Run(ctx, "", "get", "events", "--field-selector=involvedObject.name=later,reason=ProvisioningFailed", "--output=jsonpath={.items[*].message}")
		if err == nil && message == "" {
			err = fmt.Errorf("no event")
		}
		return err
	})
	require.NoError(t, env.driver.server.StartProxy(t.Context()))
	back = true
	start := time.Now()
	n.bound("later")
	n.figure("bound %.1f s after the proxy was back", time.Since(start).Seconds())
	assert.Equal(t, written, n.sum("writer", "/volume/file"))
}

// run runs kubectl in the driver's namespace, which must succeed.
func (e *environment) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.driver.kubectl.Run(context.Background(), "", args...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

func (e *environment) upgrade(t *testing.T, values map[string]any) {
	t.Helper()
	require.NoError(t, e.driver.chart(context.Background(), "upgrade", values))
}

func TestDeletedVolumeIsReportedByOneEvent(t *testing.T) {
	n := parallelNamespace(t, "a volume is deleted on its storage server: its claim gets one Event about this, although there are two controllers")
	n.apply(claim("healthy", storageClass, "64Mi", ""))
	n.apply(claim("lost", storageClass, "64Mi", ""))
	n.bound("healthy")
	n.bound("lost")
	_, uuid, _ := strings.Cut(n.handle("lost"), ":")
	require.NoError(t, env.driver.server.DeleteVolume(t.Context(), uuid))
	n.event("lost", "VolumeMissing", "does not have this volume")
	time.Sleep(12 * time.Second) // two rounds
	written := n.run("get", "events", "--field-selector=reportingComponent=csi.spdk.io", "--output=jsonpath={range .items[*]}{.involvedObject.name} {.reason}{end}")
	assert.Contains(t, []string{"lost VolumeMissing", "lost VolumeMissinglost VolumeMissing"}, written, "two if a half hour has just ended")
	assert.Contains(t, n.run("describe", "pvc", "lost"), "VolumeMissing")
}
