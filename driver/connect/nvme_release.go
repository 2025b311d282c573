package connect

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Release implements [Watcher].
func (c *byTransport) Release(ctx context.Context, e Export) error {
	_, err := operate(ctx, c, "release", e, func(ctx context.Context, t transport, step *operation.Step) (struct{}, error) {
		n, ok := t.(*nvme)
		if !ok {
			return struct{}{}, fmt.Errorf("%w: connections of transport %s cannot be ended while they are in use", ErrUnsupported, e.Transport)
		}
		return struct{}{}, n.release(ctx, e, step)
	})
	return err
}

// release removes the controllers of a subsystem, even while its devices are in use.
func (n *nvme) release(ctx context.Context, e Export, step *operation.Step) error {
	controllers, err := n.controllers(e.NQN)
	if err != nil || len(controllers) == 0 {
		return err
	}
	if err := n.deleteControllers(controllers, step); err != nil {
		return err
	}
	return n.awaitRemoval(ctx, e, step)
}
