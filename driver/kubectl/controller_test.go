package kubectl

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Commands run in a ready pod of the controller, because kubectl itself might choose a pod on a
// failed node. Without permission to read nodes, the plugin treats all nodes as ready.
func TestCommandsRunInAReadyPod(t *testing.T) {
	a := newAPI(t)
	path := deploymentPath("spdkcsi", "spdkcsi-controller")
	const (
		lost    = `{"metadata": {"name": "spdkcsi-controller-a"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}`
		leaving = `{"metadata": {"name": "spdkcsi-controller-b", "deletionTimestamp": "2026-11-26T00:00:00Z"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		ready   = `{"metadata": {"name": "spdkcsi-controller-c"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
	)
	a.run = func(string) (string, string, int) { return "", "", 0 }
	chosen := func() string {
		require.NoError(t, a.Run(t.Context(), io.Discard, io.Discard, "inventory"))
		return a.command(-1)[2]
	}
	assert.Equal(t, "deployment/spdkcsi-controller", chosen(), "the deployment cannot be read")
	a.change(func() {
		a.objects[path] = `{"spec": {"selector": {"matchLabels": {"tier": "storage", "app": "spdkcsi-controller"}}}}`
		a.fails[podsPath("spdkcsi")] = "forbidden"
	})
	assert.Equal(t, "deployment/spdkcsi-controller", chosen(), "the pods cannot be read")
	a.change(func() {
		delete(a.fails, podsPath("spdkcsi"))
		a.lists[podsPath("spdkcsi")] = []string{lost, leaving, ready}
	})
	assert.Equal(t, "pod/spdkcsi-controller-c", chosen())
	assert.Equal(t, []string{"app=spdkcsi-controller,tier=storage"}, a.query(podsPath("spdkcsi"))["labelSelector"])
	a.change(func() { a.lists[podsPath("spdkcsi")] = []string{lost, leaving} })
	assert.Equal(t, "deployment/spdkcsi-controller", chosen(), "no pod is ready")
	a.change(func() { a.lists[podsPath("spdkcsi")] = []string{ready}; a.objects[path] = `{"spec": {}}` })
	assert.Equal(t, "deployment/spdkcsi-controller", chosen(), "no labels would select every pod")
	a.change(func() { a.Controller = "pod/other" })
	assert.Equal(t, "pod/other", chosen())
}

// A pod on a failed node can remain ready, so commands run only in pods on ready nodes. If there is
// no such pod, no command is executed.
func TestCommandsRunOnAReadyNode(t *testing.T) {
	const (
		onLost    = `{"metadata": {"name": "spdkcsi-controller-a"}, "spec": {"nodeName": "worker-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		onDeleted = `{"metadata": {"name": "spdkcsi-controller-b"}, "spec": {"nodeName": "worker-9"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
		pending   = `{"metadata": {"name": "spdkcsi-controller-c"}}`
		starting  = `{"metadata": {"name": "spdkcsi-controller-d"}, "spec": {"nodeName": "worker-2"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}`
		ready     = `{"metadata": {"name": "spdkcsi-controller-e"}, "spec": {"nodeName": "worker-2"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
	)
	a := newAPI(t)
	a.objects[deploymentPath("spdkcsi", "spdkcsi-controller")] = `{"spec": {"selector": {"matchLabels": {"app": "spdkcsi-controller"}}}}`
	a.lists[nodesPath] = []string{
		`{"metadata": {"name": "worker-1"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}`,
		`{"metadata": {"name": "worker-2"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
	}
	a.run = func(string) (string, string, int) { return "", "", 0 }
	with := func(pods ...string) { a.change(func() { a.lists[podsPath("spdkcsi")] = pods }) }
	run := func() error { return a.Run(t.Context(), io.Discard, io.Discard, "fence") }

	with(onLost, onDeleted, pending, starting, ready)
	require.NoError(t, run())
	assert.Equal(t, "pod/spdkcsi-controller-e", a.command(-1)[2])
	with(onLost, starting)
	require.NoError(t, run())
	assert.Equal(t, "pod/spdkcsi-controller-d", a.command(-1)[2], "no pod is ready on a ready node")

	var executed int
	a.change(func() { executed = len(a.commands) })
	with(onLost, pending, onDeleted)
	require.EqualError(t, run(), "no pod of deployment/spdkcsi-controller in namespace spdkcsi is on a ready node: "+
		"spdkcsi-controller-a is on node worker-1, which is not ready, spdkcsi-controller-c is not scheduled, spdkcsi-controller-b is on node worker-9, which is not ready. "+
		"Nothing was executed: wait about 6 minutes until Kubernetes starts another pod, or run "+
		"`kubectl --namespace=spdkcsi delete pod spdkcsi-controller-a spdkcsi-controller-b --wait=false`, then repeat this command")
	require.Error(t, a.Doctor(t.Context(), 0, nil, io.Discard, io.Discard))
	_, err := a.Inventory(t.Context())
	require.ErrorContains(t, err, "is on a ready node")
	with(pending)
	require.ErrorContains(t, run(), "Nothing was executed: wait until a pod is scheduled, then repeat this command")
	a.change(func() { assert.Len(t, a.commands, executed) })

	a.change(func() { a.fails[nodesPath] = "forbidden" })
	with(onLost)
	require.NoError(t, run())
	assert.Equal(t, "pod/spdkcsi-controller-a", a.command(-1)[2])
}
