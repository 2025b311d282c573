package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	foreign = `{"key": "example.com/other", "effect": "NoSchedule"}`
	ours    = `{"key": "csi.spdk.io/agent-not-ready", "effect": "NoExecute", "timeAdded": "2026-11-22T18:00:00Z"}`
)

const registeredDriver = `{"spec": {"drivers": [{"name": "other.csi"}, {"name": "csi.spdk.io", "nodeID": "node-1", "allocatable": {"count": 40}}]}}`

func startupTaint(a *api, log *strings.Builder, t *turns) StartupTaint {
	s := StartupTaint{
		Client: a.client, Node: "node-1", Driver: "csi.spdk.io", Key: StartupTaintKey, NodeID: "node-1", MaxVolumes: 40,
		Ready: func(context.Context) error { return nil }, Log: logTo(log),
	}
	if t != nil {
		s.wait = t.wait
	}
	return s
}

// The taint remains until kubelet has registered the driver with its current settings and the node
// can use volumes.
func TestTaintStaysUntilTheDriverIsReady(t *testing.T) {
	a := newAPI(t)
	a.set("spec", "taints", "["+foreign+","+ours+"]")
	ctx, end := context.WithCancel(t.Context())
	module := errors.New("no module nvme-tcp")
	stays := func() { assert.Equal(t, []string{"example.com/other", StartupTaintKey}, a.taints()) }
	clock := &turns{end: end, next: []func(){
		func() { stays(); module = nil },
		func() {
			stays()
			a.change(func() { a.csiNode = object(`{"spec": {"drivers": [{"name": "other.csi"}]}}`) })
		},
		func() {
			stays()
			a.change(func() { a.csiNode = object(strings.ReplaceAll(registeredDriver, "node-1", "former")) })
		},
		func() {
			stays()
			a.change(func() { a.csiNode = object(strings.ReplaceAll(registeredDriver, "40", "30")) })
		},
		func() { stays(); a.change(func() { a.csiNode = object(registeredDriver) }) },
		func() { assert.Equal(t, []string{"example.com/other"}, a.taints()) },
	}}
	var log strings.Builder
	s := startupTaint(a, &log, clock)
	s.Ready = func(context.Context) error { return module }
	s.Run(ctx)
	for _, says := range []string{"no module nvme-tcp", "kubelet has not registered csi.spdk.io yet", "node id", "limit of 40 volumes", "startup taint removed"} {
		assert.Contains(t, log.String(), says)
	}
	assert.Equal(t, 1, a.made("PATCH"))
	var pauses []int
	for _, d := range clock.pauses {
		pauses = append(pauses, int(d.Seconds()))
	}
	assert.Equal(t, []int{1, 2, 4, 8, 16, 30, 30}, pauses)
}

// Run removes even a startup taint that an autoscaler adds after the driver is ready. It returns
// after a few minutes.
func TestTaintAddedLaterIsRemoved(t *testing.T) {
	a := newAPI(t)
	a.csiNode = object(registeredDriver)
	n := 0
	var log strings.Builder
	s := startupTaint(a, &log, nil)
	var waited time.Duration
	s.wait = func(_ context.Context, d time.Duration) error {
		waited += d
		if n++; n == 2 {
			a.set("spec", "taints", "["+ours+"]")
		}
		return nil
	}
	s.Run(t.Context())
	assert.Empty(t, a.taints())
	assert.Equal(t, 10*time.Minute+time.Second, waited, "the last pause ends after 10 minutes")
}

// When ctx ends, Run returns, regardless of whether it is waiting or making a call.
func TestTaintRemovalStopsWhenCanceled(t *testing.T) {
	a := newAPI(t)
	a.csiNode = object(registeredDriver)
	a.set("spec", "taints", "["+ours+"]")
	var log strings.Builder
	s := startupTaint(a, &log, nil)
	s.wait = func(context.Context, time.Duration) error { t.Error("it waits"); return nil }
	ctx, end := context.WithCancel(t.Context())
	s.Ready = func(context.Context) error { end(); return ctx.Err() }
	s.Run(ctx)
	assert.Empty(t, log.String(), "the end is not a reason for a log line")

	for _, w := range []func(*StartupTaint){func(*StartupTaint) {}, func(s *StartupTaint) { s.wait = sleep }} {
		ctx, end = context.WithCancel(t.Context())
		s = startupTaint(a, &log, &turns{end: end})
		w(&s)
		s.Ready = func(context.Context) error {
			time.AfterFunc(time.Millisecond, end)
			return errors.New("not ready")
		}
		s.Run(ctx)
		assert.Equal(t, []string{StartupTaintKey}, a.taints())
	}
}

// A taint that another client adds concurrently is kept, and the next attempt removes the driver's
// own taint.
func TestConcurrentTaintChangesAreKept(t *testing.T) {
	a := newAPI(t)
	a.csiNode = object(registeredDriver)
	a.set("spec", "taints", "["+ours+"]")
	a.beforePatch = func() {
		a.beforePatch = nil
		a.node["spec"].(map[string]any)["taints"] = object(`{"v": [` + foreign + "," + ours + `]}`)["v"]
	}
	var log strings.Builder
	s := startupTaint(a, &log, nil)
	removed := func(want int) {
		t.Helper()
		assert.Equal(t, want, strings.Count(log.String(), "startup taint removed"), log.String())
	}
	require.ErrorIs(t, s.try(t.Context()), ErrChanged)
	removed(0)
	require.NoError(t, s.try(t.Context()))
	removed(1)
	assert.Equal(t, []string{"example.com/other"}, a.taints())
	require.NoError(t, s.try(t.Context()), "nothing is left to do")
	removed(1)
	assert.Equal(t, 2, a.made("PATCH"))
}

func TestAllTaintsWithTheKeyAreRemoved(t *testing.T) {
	a := newAPI(t)
	a.csiNode = object(registeredDriver)
	a.set("spec", "taints", "["+ours+","+foreign+","+strings.Replace(ours, "NoExecute", "NoSchedule", 1)+"]")
	var log strings.Builder
	require.NoError(t, startupTaint(a, &log, nil).try(t.Context()))
	assert.Equal(t, []string{"example.com/other"}, a.taints())
}

// Without permission, the driver logs only once that the taint remains. When the permission is
// granted, it removes the taint.
func TestMissingTaintPermissionIsLoggedOnce(t *testing.T) {
	a := newAPI(t)
	a.csiNode = object(registeredDriver)
	a.set("spec", "taints", "["+ours+"]")
	a.status = http.StatusForbidden
	ctx, end := context.WithCancel(t.Context())
	var log strings.Builder
	clock := &turns{end: end, next: []func(){
		func() {},
		func() {},
		func() {
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
			assert.Contains(t, log.String(), "no permission")
			a.change(func() { a.status = 0 })
		},
	}}
	startupTaint(a, &log, clock).Run(ctx)
	assert.Empty(t, a.taints())
}
