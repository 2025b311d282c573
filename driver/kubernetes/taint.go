package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"
)

// StartupTaintKey is the key of the taint that keeps pods off a new node until the driver is ready
// there. Administrators set the taint.
const StartupTaintKey = "csi.spdk.io/agent-not-ready"

// A StartupTaint removes a taint from a node once the driver is ready to serve there.
type StartupTaint struct {
	Client *Client
	Node   string // name of the node
	Driver string // name of the driver
	Key    string // the taint's key; taints with any effect and value are removed
	// NodeID and MaxVolumes are the values that the driver has reported to kubelet. A MaxVolumes of
	// 0 means no limit.
	NodeID     string
	MaxVolumes int64
	// Ready fails while the node cannot use volumes, for example because a kernel module is
	// missing.
	Ready func(context.Context) error
	Log   *slog.Logger

	// Tests replace wait.
	wait func(context.Context, time.Duration) error
}

const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
	// lateTaint is how long new taints are still removed after the driver has become ready. An
	// autoscaler, for example, may add its taints late.
	lateTaint = 10 * time.Minute
)

// Run waits until the driver is ready, and removes the taint. If the taint reappears within a few
// minutes, Run removes it again. Then, or when ctx ends, Run returns. Run never adds a taint.
func (s StartupTaint) Run(ctx context.Context) {
	if s.wait == nil {
		s.wait = sleep
	}
	var last string
	var readyFor time.Duration
	for pause := firstPause; readyFor < lateTaint; pause = min(2*pause, mostPause) {
		err := s.try(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrForbidden):
			// Keep trying, because the permission may be granted later, but log this only once.
			if last != "forbidden" {
				s.Log.Error("the startup taint is not removed: no permission. Pods wait until it is removed manually", "node", s.Node, "taint", s.Key, "error", err)
			}
			last = "forbidden"
		case err != nil:
			if text := err.Error(); last != text {
				s.Log.Info("the driver is not ready yet; the startup taint remains until it is", "node", s.Node, "taint", s.Key, "error", err)
				last = text
			}
		default:
			readyFor += pause
		}
		if s.wait(ctx, pause) != nil {
			return
		}
	}
}

// try removes the taint if the driver is ready. It fails if the driver is not ready, or if the
// taint cannot be removed.
func (s StartupTaint) try(ctx context.Context) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	registered, err := s.Client.csiNode(ctx, s.Node)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := s.registered(registered); err != nil {
		return err
	}
	n, err := s.Client.node(ctx, s.Node)
	if err != nil {
		return err
	}
	removed, err := s.Client.removeTaint(ctx, s.Node, n, s.Key)
	if removed > 0 && err == nil {
		s.Log.Info("startup taint removed: the driver serves this node", "node", s.Node, "taint", s.Key)
	}
	return err
}

// registered fails unless kubelet has registered the driver with its current settings. A restarted
// node may still have a CSINode entry from an earlier configuration.
func (s StartupTaint) registered(n csiNode) error {
	i := slices.IndexFunc(n.Spec.Drivers, func(d csiNodeDriver) bool { return d.Name == s.Driver })
	if i < 0 {
		return fmt.Errorf("kubelet has not registered %s yet", s.Driver)
	}
	d := n.Spec.Drivers[i]
	if d.NodeID != s.NodeID {
		return fmt.Errorf("the CSINode has the node id %q, but the driver has %q: kubelet has not registered it again yet", d.NodeID, s.NodeID)
	}
	if s.MaxVolumes > 0 && (d.Allocatable == nil || d.Allocatable.Count == nil || *d.Allocatable.Count != s.MaxVolumes) {
		return fmt.Errorf("the CSINode does not have the limit of %d volumes yet", s.MaxVolumes)
	}
	return nil
}

// removeTaint removes all taints with the key. The patch contains each taint's index and value. If
// another client has changed the taints in the meantime, the API server refuses the patch, so that
// the change of that client is not lost.
func (c *Client) removeTaint(ctx context.Context, name string, n node, key string) (removed int, err error) {
	type step struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var patch []step
	for i, k := range slices.Backward(n.taints()) { // from the end, so that the other indexes stay valid
		if k == key {
			path := "/spec/taints/" + strconv.Itoa(i)
			patch = append(patch, step{"test", path, n.Spec.Taints[i]}, step{Op: "remove", Path: path})
		}
	}
	if len(patch) == 0 {
		return 0, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return 0, err
	}
	var ignored json.RawMessage
	return len(patch) / 2, c.call(ctx, nodePath(name), nil, text, &ignored)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
