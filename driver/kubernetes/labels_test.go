package kubernetes

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

// The labels of a new node are complete only after the cloud controller has initialized it.
func TestNodeLabelsAreRead(t *testing.T) {
	a := newAPI(t)
	a.set("metadata", "labels", `{"topology.kubernetes.io/region": "r", "x": "y"}`)
	a.set("spec", "taints", `[{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]`)
	a.status = http.StatusServiceUnavailable
	ctx, end := context.WithCancel(t.Context())
	defer end()
	clock := &turns{end: end, next: []func(){
		func() { a.change(func() { a.status = 0 }) },
		func() {
			a.set("metadata", "labels", `{"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}`)
			a.set("spec", "taints", `[]`)
		},
	}}
	var log strings.Builder
	found, err := a.client.labels(ctx, "node-1", []string{zone, region, "missing"}, logTo(&log), clock.wait)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{zone: "z", region: "r"}, found)

	a.change(func() { a.status = http.StatusForbidden })
	_, err = a.client.labels(ctx, "node-1", []string{zone}, logTo(&log), clock.wait)
	require.ErrorIs(t, err, ErrForbidden)
	a.change(func() { a.status = http.StatusInternalServerError })
	_, err = a.client.labels(ctx, "node-1", []string{zone}, logTo(&log), clock.wait)
	require.ErrorContains(t, err, "HTTP status 500")
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second}, clock.pauses)
}
