package controller

import (
	"context"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

// Allocated reports which clusters of a volume are allocated. Hosts must not write to the volume
// during the call.
func (c *Controller) Allocated(ctx context.Context, id request.VolumeID) (inventory.Allocation, error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return inventory.Allocation{}, err
	}
	return service.Allocated(ctx, id.UUID)
}

// Inspect describes a volume, including whether it was created with the given name, and whether it
// is published to the given node.
func (c *Controller) Inspect(ctx context.Context, id request.VolumeID, name, nodeID string) (inventory.Inspected, error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return inventory.Inspected{}, err
	}
	v, err := service.GetVolume(ctx, id.UUID)
	if err != nil {
		return inventory.Inspected{}, err
	}
	hosts, err := service.Hosts(ctx, []string{id.UUID})
	if err != nil {
		return inventory.Inspected{}, err
	}
	is, h := inventory.Inspected{SizeBytes: v.SizeBytes, Named: v.Named(name)}, hostOf(nodeID)
	for _, name := range hosts[0] {
		if name == h.NQN || name == h.Multipath || name == h.IQN {
			is.Published = true
		} else {
			is.Others = true
		}
	}
	return is, nil
}
