package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

// undoTimeout limits the time for undoing a failed call. The deadline of the call itself may have
// passed.
const undoTimeout = 30 * time.Second

// failedStage cleans up after a failed staging, and returns the call's error. It unmounts and
// disconnects the volume, even if an earlier call mounted or connected it. It leaves the volume
// unchanged if the volume was in use before the call (before is true) and pods may still be using
// it.
//
// After most error codes of NodeStageVolume, kubelet forgets the volume and never calls
// NodeUnstageVolume for it. If the volume is still connected or mounted, the error therefore wraps
// request.ErrLeftBehind, which makes kubelet repeat the call.
func (n *Node) failedStage(ctx context.Context, staging, id string, before bool, failed error) error {
	record, found, err := readRecord(staging, id)
	switch {
	case errors.Is(err, request.ErrConflict):
		return failed // another volume is staged here
	case err != nil:
		return fmt.Errorf("%w (it is unknown what the volume is connected to; %w)", failed, request.ErrLeftBehind)
	case before && n.inUse(staging, id, record):
		return fmt.Errorf("%w (the volume was in use before this call, and remains unchanged; %w)", failed, request.ErrLeftBehind)
	case !found:
		return failed // without a record, nothing is connected or mounted
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := n.unstage(ctx, staging, record); err != nil {
		return fmt.Errorf("%w (undoing the call failed: %w; %w)", failed, err, request.ErrLeftBehind)
	}
	return failed
}

// inUse reports whether a pod may be using a volume, because the volume is published or its file
// system is mounted.
func (n *Node) inUse(staging, id string, r stageRecord) bool {
	return n.isMounted(stagePath(staging, id)) || slices.ContainsFunc(r.Targets, n.isMounted)
}

// failedPublish returns the error for NodePublishVolume, which undoes its own steps. As after a
// failed staging, kubelet may forget the pod's mount. If the path is still mounted, or if this call
// connected the volume, the code of the error therefore makes kubelet retry. If the volume has
// remained connected since it was staged, no retry is needed, because kubelet unstages the volume
// later.
func (n *Node) failedPublish(ctx context.Context, staging, id, target string, again bool, failed error) error {
	if n.isMounted(target) {
		return fmt.Errorf("%w (%s; %w)", failed, target, request.ErrLeftBehind)
	}
	record, found, err := readRecord(staging, id)
	switch {
	case errors.Is(err, request.ErrConflict):
		return failed // another volume is staged here
	case err != nil:
		return fmt.Errorf("%w (it is unknown what the volume is connected to; %w)", failed, request.ErrLeftBehind)
	case again && found && n.isConnected(ctx, record):
		return fmt.Errorf("%w (the volume was connected again; %w)", failed, request.ErrLeftBehind)
	}
	return failed
}

// isConnected returns true unless the kernel reports that the volume is not connected.
func (n *Node) isConnected(ctx context.Context, r stageRecord) bool {
	if r.replicated() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := n.connector.Find(ctx, r.Export)
	return !errors.Is(err, connect.ErrNotConnected)
}

// failedUnstage returns the error for NodeUnstageVolume. The record is removed last. While the
// record exists, the volume may be mounted or connected, and the call must be retried.
func (n *Node) failedUnstage(staging, id string, failed error) error {
	_, found, err := readRecord(staging, id)
	if errors.Is(err, request.ErrConflict) || err == nil && !found && !n.isMounted(stagePath(staging, id)) {
		return failed
	}
	return fmt.Errorf("%w (%w)", failed, request.ErrLeftBehind)
}

// failedUnpublish returns the error for NodeUnpublishVolume.
func (n *Node) failedUnpublish(target string, failed error) error {
	if n.isMounted(target) {
		return fmt.Errorf("%w (%w)", failed, request.ErrLeftBehind)
	}
	return failed
}
