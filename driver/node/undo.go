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

// undoTimeout limits the time to undo a failed call. The deadline of the call itself may have
// passed by then.
const undoTimeout = 30 * time.Second

// failedStage cleans up after a failed staging, and returns the call's error. It unmounts and
// disconnects the volume, even if an earlier call left it so. A volume that pods used before the
// call (before) and may still be using stays as it is.
//
// After most error codes of NodeStageVolume, kubelet forgets the volume and never calls
// NodeUnstageVolume for it. So while the volume is still connected or mounted, the error is of kind
// request.ErrLeftBehind, after which kubelet repeats the call.
func (n *Node) failedStage(ctx context.Context, staging, id string, before bool, failed error) error {
	record, found, err := readRecord(staging, id)
	switch {
	case errors.Is(err, request.ErrConflict):
		return failed // another volume is staged here
	case err != nil:
		return fmt.Errorf("%w (it is unknown what the volume is connected to; %w)", failed, request.ErrLeftBehind)
	case before && n.inUse(staging, id, record):
		return fmt.Errorf("%w (the volume was in use before this call, and is left as it was; %w)", failed, request.ErrLeftBehind)
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

// inUse reports whether a pod may be using a volume: its file system is mounted, or it is
// published.
func (n *Node) inUse(staging, id string, r stageRecord) bool {
	return n.isMounted(stagePath(staging, id)) || slices.ContainsFunc(r.Targets, n.isMounted)
}

// failedPublish returns the error for NodePublishVolume, which undoes its own steps. As after a
// failed staging, kubelet would forget a pod's mount, so while the path is mounted, the code makes
// kubelet retry. So does the code if this call connected the volume. A volume connected since its
// staging needs no such code: kubelet unstages it later.
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

// isConnected reports whether a volume may be connected. It is, unless the kernel says that it is
// not.
func (n *Node) isConnected(ctx context.Context, r stageRecord) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := n.connector.Find(ctx, r.Export)
	return !errors.Is(err, connect.ErrNotConnected)
}

// failedUnstage returns the error for NodeUnstageVolume. The record is removed last, so while there
// is one, the volume may be mounted or connected, and the call must be retried.
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
