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

const (
	inUse    = `["kubernetes.io/csi/csi.spdk.io^storage-1:1", "kubernetes.io/csi/other.csi^2"]`
	attached = `[{"name": "kubernetes.io/csi/csi.spdk.io^storage-1:1"}, {"name": "kubernetes.io/csi/other.csi^2"}]`
	othersIn = `["kubernetes.io/csi/other.csi^2"]`
)

func drain(a *api, log *strings.Builder, t *turns) Drain {
	return Drain{Client: a.client, Node: "node-1", Driver: "csi.spdk.io", Log: logTo(log), wait: t.wait}
}

// The hook does not delay an update of the DaemonSet, even if the node is using volumes.
func TestDrainHookDoesNotWaitWithoutADrain(t *testing.T) {
	a := newAPI(t)
	a.set("status", "volumesInUse", inUse)
	a.set("spec", "taints", `[`+foreign+`]`)
	var log strings.Builder
	require.NoError(t, drain(a, &log, &turns{}).Wait(t.Context()))
	assert.Contains(t, log.String(), "not being drained")
	assert.Len(t, a.calls, 1)
}

func TestDrainWaitsForVolumes(t *testing.T) {
	for name, prepare := range map[string]func(a *api){
		"cordoned": func(a *api) { a.set("spec", "unschedulable", "true") },
		"deleted":  func(a *api) { a.set("metadata", "deletionTimestamp", `"2026-11-22T18:00:00Z"`) },
		"drained": func(a *api) {
			a.set("spec", "taints", `[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]`)
		},
		"removed by the autoscaler": func(a *api) {
			a.set("spec", "taints", `[{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]`)
		},
		"removed by Karpenter": func(a *api) { a.set("spec", "taints", `[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]`) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			prepare(a)
			a.set("status", "volumesInUse", inUse)
			a.set("status", "volumesAttached", attached)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			clock := &turns{end: end, next: []func(){
				func() {},
				func() { a.set("status", "volumesInUse", othersIn) }, // unmounted but not yet detached
				func() { a.set("status", "volumesAttached", `[{"name": "kubernetes.io/csi/other.csi^2"}]`) },
			}}
			var log strings.Builder
			require.NoError(t, drain(a, &log, clock).Wait(ctx))
			assert.Empty(t, clock.next, "it waited for both")
			assert.Equal(t, 1, strings.Count(log.String(), "storage-1:1"), log.String())
			assert.Zero(t, a.made("GET /apis/storage.k8s.io"), "listing all attachments of the cluster is expensive")
		})
	}
}

// If there is no Node object, the VolumeAttachments show the remaining volumes.
func TestDrainUsesAttachmentsWithoutANodeObject(t *testing.T) {
	a := newAPI(t)
	a.node = nil
	attachment := func(attacher, node string) any {
		return object(`{"spec": {"attacher": "` + attacher + `", "nodeName": "` + node + `", "source": {"persistentVolumeName": "pv"}}}`)
	}
	others := []any{attachment("other.csi", "node-1"), attachment("csi.spdk.io", "node-2")}
	a.attachments = append(others[:2:2], attachment("csi.spdk.io", "node-1"))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	clock := &turns{end: end, next: []func(){func() { a.change(func() { a.attachments = others }) }}}
	var log strings.Builder
	require.NoError(t, drain(a, &log, clock).Wait(ctx))
	assert.Empty(t, clock.next)

	a.change(func() { a.attachments = nil })
	require.NoError(t, drain(a, &log, &turns{}).Wait(t.Context()), "no attachment in the cluster")
}

func TestDrainHookStopsAfterItsTimeout(t *testing.T) {
	a := newAPI(t)
	a.set("spec", "unschedulable", "true")
	a.set("status", "volumesInUse", inUse)
	ctx, end := context.WithCancel(t.Context())
	var log strings.Builder
	err := drain(a, &log, &turns{end: end, next: []func(){func() {}}}).Wait(ctx)
	require.ErrorContains(t, err, "1 volumes are still in use there after the time limit: [storage-1:1]")
}

// The time limit applies even while it is unknown whether the node is being drained.
func TestDrainHookTimesOutInUnknownState(t *testing.T) {
	a := newAPI(t)
	a.status = http.StatusServiceUnavailable
	ctx, end := context.WithCancel(t.Context())
	var log strings.Builder
	err := drain(a, &log, &turns{end: end}).Wait(ctx)
	require.ErrorContains(t, err, "does not wait for its volumes")
	require.NotErrorIs(t, err, ErrForbidden)
	assert.Equal(t, 1, a.made("GET /api/v1/nodes"))
}

// The hook does not delay an update of the DaemonSet if it is unknown whether the node is being
// drained.
func TestUnknownDrainStateDoesNotDelayUpdates(t *testing.T) {
	a := newAPI(t)
	a.status = http.StatusForbidden
	var log strings.Builder
	err := drain(a, &log, &turns{}).Wait(t.Context())
	require.ErrorIs(t, err, ErrForbidden)
	require.ErrorContains(t, err, "does not wait for its volumes")

	a.change(func() { a.status = http.StatusServiceUnavailable })
	tries := 0
	d := drain(a, &log, &turns{})
	d.wait = func(context.Context, time.Duration) error {
		if tries++; tries == 3 {
			a.change(func() { a.status = 0 })
		}
		return nil
	}
	require.NoError(t, d.Wait(t.Context()), "the API server came back")

	// While the node is being drained, reading its volumes fails temporarily.
	a.set("spec", "unschedulable", "true")
	a.set("status", "volumesInUse", inUse)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	clock := &turns{end: end, next: []func(){
		func() { a.change(func() { a.status = http.StatusServiceUnavailable }) },
		func() { a.change(func() { a.status = 0 }); a.set("status", "volumesInUse", "[]") },
	}}
	require.NoError(t, drain(a, &log, clock).Wait(ctx))
	assert.Contains(t, log.String(), "trying again")
	a.set("status", "volumesInUse", inUse)
	clock = &turns{end: end, next: []func(){func() { a.change(func() { a.status = http.StatusForbidden }) }}}
	require.ErrorIs(t, drain(a, &log, clock).Wait(ctx), ErrForbidden, "the permission was withdrawn")
}
