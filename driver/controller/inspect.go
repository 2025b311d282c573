package controller

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// Allocated reports which clusters of a volume are allocated. If base is not empty, it is the UUID
// of a snapshot on the same target, and Allocated reports which clusters may differ from the
// snapshot. Hosts must not write to the volume during the call.
func (c *Controller) Allocated(ctx context.Context, id request.VolumeID, base string) (inventory.Allocation, error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return inventory.Allocation{}, err
	}
	return service.Allocated(ctx, id.UUID, base)
}

// FindNamed returns the ids of the snapshot and the volume that were created with the given names
// on the target of volume id. An id is empty if the object does not exist.
func (c *Controller) FindNamed(ctx context.Context, id request.VolumeID, snapshotName, volumeName string) (snapshot, found string, err error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return "", "", err
	}
	s, err := service.FindSnapshot(ctx, snapshotName)
	if err == nil {
		snapshot = request.VolumeID{Target: service.Name, UUID: s.UUID}.String()
	} else if !errors.Is(err, volume.ErrNotFound) {
		return "", "", err
	}
	stores, err := service.Stores(ctx)
	if err != nil {
		return "", "", err
	}
	v, err := service.Find(ctx, stores, volume.Spec{Name: volumeName})
	if err == nil {
		found = request.VolumeID{Target: service.Name, UUID: v.UUID}.String()
	} else if !errors.Is(err, volume.ErrNotFound) {
		return "", "", err
	}
	return snapshot, found, nil
}

// Inspect describes a volume, including whether it is published to the given node, or to the node
// of a move.
func (c *Controller) Inspect(ctx context.Context, id request.VolumeID, nodeID string) (inventory.Inspected, error) {
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return inventory.Inspected{}, err
	}
	v, err := service.GetVolume(ctx, id.UUID)
	if err != nil {
		return inventory.Inspected{}, err
	}
	// Include an export without a listener, because it admits its hosts again when the listener is
	// added.
	inspection, err := service.Exports().Inspect(ctx)
	if err != nil {
		return inventory.Inspected{}, err
	}
	is := inventory.Inspected{SizeBytes: v.SizeBytes}
	var names []string
	for _, e := range inspection.Exports {
		if e.Volume == id.UUID {
			names = append(names, e.Hosts...)
		}
	}
	for _, name := range names {
		if copied, ok := hostname.CopyOf(name); ok && copied != id.UUID {
			is.CopyUUID = copied
		}
	}
	node, mover := hostOf(nodeID), hostOf(hostname.MoveNode(id.UUID, is.CopyUUID))
	for _, name := range names {
		switch name {
		case node.NQN, node.Multipath, node.IQN:
			is.Published = true
		case mover.NQN, mover.Multipath, mover.IQN:
		default:
			is.Others = true
		}
	}
	return is, nil
}
