package controller

import (
	"context"
	"slices"

	"github.com/spdkgate/spdkgate/driver/request"
)

// Inspect returns a volume's size, whether it was created under a name, and whether it is published to a node.
func (c *Controller) Inspect(ctx context.Context, id request.VolumeID, name, nodeID string) (sizeBytes int64, named, published bool, err error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return 0, false, false, err
	}
	v, err := service.GetVolume(ctx, id.UUID)
	if err != nil {
		return 0, false, false, err
	}
	hosts, err := service.Hosts(ctx, []string{id.UUID})
	if err != nil {
		return 0, false, false, err
	}
	h := hostOf(nodeID)
	return v.SizeBytes, v.Named(name), slices.ContainsFunc(hosts[0], func(name string) bool { return name == h.NQN || name == h.Multipath || name == h.IQN }), nil
}
