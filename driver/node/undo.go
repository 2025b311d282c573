package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/request"
)

// undoTimeout limits how long a failed call is undone: the deadline of the call itself may have passed.
const undoTimeout = 30 * time.Second

// failedStage ends a staging that failed, and returns the error to answer. What no pod can be using is unmounted and
// disconnected, also if an earlier call left it. What was in use before the call (before) and still is, stays.
//
// Kubelet forgets a volume whose NodeStageVolume failed with most codes, and never calls NodeUnstageVolume for it. So as
// long as anything of the volume is left, the error is of kind request.ErrLeftBehind, which kubelet repeats.
func (n *Node) failedStage(ctx context.Context, staging, id string, before bool, failed error) error {
	record, found, err := readRecord(staging, id)
	switch {
	case errors.Is(err, request.ErrConflict):
		return failed // another volume is staged here
	case err != nil:
		return fmt.Errorf("%w (it is unknown what the volume is connected to; %w)", failed, request.ErrLeftBehind)
	case before && n.inUse(staging, id, record):
		return fmt.Errorf("%w (it was in use before this call, and is left as it was; %w)", failed, request.ErrLeftBehind)
	case !found:
		return failed // whatever is connected or mounted has a record
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := n.unstage(ctx, staging, record); err != nil {
		return fmt.Errorf("%w (undoing the call failed: %w; %w)", failed, err, request.ErrLeftBehind)
	}
	return failed
}

// inUse reports whether a pod may be using a volume: its file system is mounted, or it is published.
func (n *Node) inUse(staging, id string, r stageRecord) bool {
	return n.isMounted(stagePath(staging, id)) || slices.ContainsFunc(r.Targets, n.isMounted)
}

// failedPublish is failedStage for NodePublishVolume, which undoes by itself what it did: kubelet forgets the mount of a pod
// in the same way.
func (n *Node) failedPublish(target string, failed error) error {
	if n.isMounted(target) {
		return fmt.Errorf("%w (%s; %w)", failed, target, request.ErrLeftBehind)
	}
	return failed
}
