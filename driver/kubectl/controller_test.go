package kubectl

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A command runs in a ready pod of the controller. kubectl may choose one on a failed node.
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
