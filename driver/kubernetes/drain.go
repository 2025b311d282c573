package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// drainTaints lists the taints of nodes that are being drained. The first is the taint of a
// cordoned node.
var drainTaints = []string{
	"node.kubernetes.io/unschedulable",
	"ToBeDeletedByClusterAutoscaler",
	"karpenter.sh/disrupted",
	"karpenter.sh/disruption",
}

// A Drain waits until a node that is being drained has no volumes of the driver left.
type Drain struct {
	Client *Client
	Node   string // name of the node
	Driver string // name of the driver
	Log    *slog.Logger

	// Tests replace wait.
	wait func(context.Context, time.Duration) error
}

// firstAnswer limits how long Wait waits for the first response of the API server. Without a
// response, it is unknown whether the node is being drained, and an update of the DaemonSet must
// not be delayed.
const firstAnswer = 10 * time.Second

// Wait returns immediately unless the node is being drained, that is, unless it is cordoned,
// tainted by an autoscaler, being deleted or already gone. On a node that is being drained, it
// waits until all volumes of the driver have been unmounted and detached. Wait fails if ctx ends
// first, or if it cannot determine the state.
func (d Drain) Wait(ctx context.Context) error {
	if d.wait == nil {
		d.wait = sleep
	}
	draining, err := d.draining(ctx)
	if err != nil {
		return fmt.Errorf("cannot determine whether node %s is being drained, so the hook does not wait for its volumes: %w", d.Node, err)
	}
	if !draining {
		d.Log.Info("the node is not being drained: not waiting for its volumes", "node", d.Node)
		return nil
	}
	var before []string
	for {
		volumes, err := d.volumes(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("node %s is being drained, but %d volumes are still in use there after the time limit: %v", d.Node, len(before), before)
		case errors.Is(err, ErrForbidden):
			return fmt.Errorf("cannot determine whether node %s still has volumes, so the hook does not wait for them: %w", d.Node, err)
		case err != nil:
			d.Log.Warn("the node's volumes cannot be read; trying again", "node", d.Node, "error", err)
		case len(volumes) == 0:
			d.Log.Info("the node is being drained, and has no volumes left", "node", d.Node)
			return nil
		case !slices.Equal(before, volumes):
			d.Log.Info("the node is being drained: waiting for its volumes", "node", d.Node, "volumes", volumes)
			before = volumes
		}
		_ = d.wait(ctx, time.Second) // the loop checks whether ctx has ended
	}
}

// draining reports whether the node is being drained. It keeps retrying while calls to the API
// server fail.
func (d Drain) draining(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	for {
		n, err := d.Client.node(ctx, d.Node)
		switch {
		case err == nil:
			return n.draining(), nil
		case errors.Is(err, ErrNotFound):
			return true, nil
		case errors.Is(err, ErrForbidden), ctx.Err() != nil:
			return false, err
		}
		if d.wait(ctx, time.Second) != nil {
			return false, err
		}
	}
}

func (n node) draining() bool {
	return n.Spec.Unschedulable || n.Metadata.DeletionTimestamp != "" ||
		slices.ContainsFunc(n.taints(), func(key string) bool { return slices.Contains(drainTaints, key) })
}

// volumes returns the driver's volumes on the node. The Node object lists these volumes. A volume
// remains listed until kubelet has unmounted it and the cluster has detached it. If there is no
// Node object, volumes reads all VolumeAttachments of the cluster instead.
func (d Drain) volumes(ctx context.Context) ([]string, error) {
	n, err := d.Client.node(ctx, d.Node)
	if errors.Is(err, ErrNotFound) {
		return d.Client.attachments(ctx, d.Driver, d.Node)
	}
	return n.volumes(d.Driver), err
}
