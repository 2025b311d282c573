//go:build kubernetes

package e2e

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

func TestPodKeepsItsVolumeDuringAnUpgrade(t *testing.T) {
	n := disturbingNamespace(t, "the chart is upgraded to another image and more arguments while a pod runs: the pod keeps its volume, which is then detached and deleted as usual")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	values := env.driver.values()
	t.Cleanup(func() {
		env.upgrade(t, values)
		require.NoError(t, env.driver.inService(context.Background()))
	})
	upgraded := maps.Clone(values)
	upgraded["image"] = map[string]any{"tag": otherVersion}
	upgraded["controller"] = map[string]any{"extraArgs": []string{"--log-format=json"}}
	start := time.Now()
	env.upgrade(t, upgraded)
	assert.Equal(t, written, n.sum("first", "/volume/file"), "while the driver is replaced")
	require.NoError(t, env.driver.inService(t.Context()))
	n.figure("%.1f s", time.Since(start).Seconds())
	assert.Contains(t, env.run(t, "get", "daemonset/"+driverDaemonSet, "--output=jsonpath={.spec.template.spec.containers[0].image}"), ":"+otherVersion)
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
	n.run("delete", "pod", "second")
	n.run("delete", "pvc", "data")
}

func TestPasswordIsReplacedByToken(t *testing.T) {
	n := newNamespace(t, "the controller changes from a password to tokens of its service account: a volume in use keeps its Secret and is later deleted as usual; new volumes name no Secret")
	n.apply(claim("old", storageClass, "64Mi", ""))
	n.apply(pod("old", "old"))
	n.ready("old")
	values := env.driver.values()
	change := func(values map[string]any) {
		// The parameters of classes are immutable.
		n.run("delete", "storageclass/"+storageClass, "volumesnapshotclass/spdkcsi-snapclass", "volumegroupsnapshotclass/spdkcsi-groupsnapclass")
		env.upgrade(t, values)
		require.NoError(t, env.driver.inService(context.Background()))
	}
	t.Cleanup(func() { change(values) })
	tokens := maps.Clone(values)
	credentials := maps.Clone(values["credentials"].(map[string]any))
	credentials["serviceAccountToken"] = true
	tokens["credentials"] = credentials
	change(tokens)
	n.apply(claim("new", storageClass, "64Mi", ""))
	n.apply(pod("new", "new"))
	n.ready("new")
	calls, err := env.driver.server.Calls(storage.TokenUser)
	require.NoError(t, err)
	assert.NotZero(t, calls, "calls that the proxy logged for the service account")
	assert.Empty(t, n.run("get", "pv", n.volume("new"), "--output=jsonpath={.spec.csi.controllerPublishSecretRef.name}"))
	assert.Equal(t, driverSecret, n.run("get", "pv", n.volume("old"), "--output=jsonpath={.spec.csi.controllerPublishSecretRef.name}"))
	volumes := []string{n.volume("old"), n.volume("new")}
	start := time.Now()
	n.run("delete", "pod", "old", "new")
	n.run("delete", "pvc", "old", "new")
	n.eventually("the volumes are gone", func(ctx context.Context) error { return noVolumeOf(ctx, n.name) })
	assert.Empty(t, n.objects(volumes...), "on the storage server")
	n.figure("the old and the new volume are detached and deleted after %.1f s", time.Since(start).Seconds())
}

const podSecurity = `apiVersion: v1
kind: Namespace
metadata:
  name: podsecurity-restricted
  labels: {pod-security.kubernetes.io/enforce: restricted}
`

func TestRestrictedNamespaceRefusesTheNodePlugin(t *testing.T) {
	n := parallelNamespace(t, "a namespace with Pod Security \"restricted\" admits the controller's pods, but refuses the node plugin's")
	n.apply(podSecurity)
	t.Cleanup(func() { n.run("delete", "namespace", "podsecurity-restricted") })
	restricted := namespace{t: t, kubectl: env.cluster.Kubectl().In("podsecurity-restricted")}
	asPod := func(object string) string {
		spec := env.run(t, "get", object, "--output=jsonpath={.spec.template.spec}")
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": ` + spec + `}`
	}
	restricted.run("create", "serviceaccount", "spdkcsi-controller-sa")
	restricted.input(asPod("deployment/"+driverDeployment), "apply", "--dry-run=server", "--filename=-")
	restricted.run("create", "serviceaccount", "spdkcsi-node-sa")
	_, err := restricted.kubectl.Run(t.Context(), asPod("daemonset/"+driverDaemonSet), "apply", "--dry-run=server", "--filename=-")
	require.ErrorContains(t, err, `violates PodSecurity "restricted`)
}
