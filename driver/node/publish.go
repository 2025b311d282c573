package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// NodePublishVolume makes a staged volume appear at a path. If its device was lost since, because its target was away
// for too long, or its file system was shut down, it is staged again: Kubernetes does not do so for a pod that replaces
// another on the same node.
func (n *Node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	places := []place{{"target_path", target}, {"staging_target_path", staging}}
	if err := errors.Join(checkRequest(id, places...), request.CheckCapabilities(req.GetVolumeCapability())); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	if err := n.publishVolume(ctx, req); err != nil {
		return nil, fmt.Errorf("publish volume %s: %w", id, n.failedPublish(target, err))
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *Node) publishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) error {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	record, staged, err := readRecord(staging, id)
	if err != nil {
		return err
	}
	if !staged {
		return fmt.Errorf("%w at %s", request.ErrNotStaged, staging)
	}
	capability := req.GetVolumeCapability()
	if block := capability.GetBlock() != nil; block != record.Block {
		return fmt.Errorf("%w: it is staged with the other volume mode", request.ErrConflict)
	}
	if err := n.soleWriter(capability, record, target); err != nil {
		return err
	}
	if err := record.publishedAt(staging, target, n.isMounted); err != nil {
		return err
	}
	ro := req.GetReadonly() || request.ReadOnly(capability)
	if record.Block {
		return n.publishDevice(ctx, record, target, ro)
	}
	return n.publishMount(ctx, staging, record, capability, req.GetVolumeContext(), target, ro)
}

// soleWriter refuses a second path for a volume that only one may use.
func (n *Node) soleWriter(c *csi.VolumeCapability, r stageRecord, target string) error {
	if c.GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil
	}
	for _, t := range r.Targets {
		if t != target && n.isMounted(t) {
			return fmt.Errorf("%w: at %s, and its access mode is %s: unpublish it there first", request.ErrElsewhere, t, c.GetAccessMode().GetMode())
		}
	}
	return nil
}

func (n *Node) isMounted(path string) bool {
	_, err := n.mounter.At(path)
	return !errors.Is(err, mount.ErrNotMounted)
}

func (n *Node) publishDevice(ctx context.Context, r stageRecord, target string, ro bool) error {
	device, err := n.connector.Find(ctx, r.Export)
	if errors.Is(err, connect.ErrNotConnected) {
		n.log.WarnContext(ctx, "device is gone, connecting the volume again", "volume", r.VolumeID)
		device, err = n.connector.Connect(ctx, r.Export)
	}
	if err != nil {
		return err
	}
	if err := n.clearStale(ctx, target); err != nil {
		return err
	}
	return n.mounter.BindDevice(ctx, device.Path, target, ro)
}

func (n *Node) publishMount(ctx context.Context, staging string, r stageRecord, c *csi.VolumeCapability, remembered map[string]string, target string, ro bool) error {
	source := stagePath(staging, r.VolumeID)
	err := n.mounter.Check(ctx, source)
	if errors.Is(err, mount.ErrNotMounted) || errors.Is(err, mount.ErrBroken) || errors.Is(err, mount.ErrUnreadable) {
		n.log.WarnContext(ctx, "staging the volume again", "volume", r.VolumeID, "why", err)
		// It was staged before: it has its file system, or has lost it. Neither is to be formatted.
		err = n.stage(ctx, staging, r, n.mountOf(c, attachment{fsType: remembered[request.KeyFSType]}))
	}
	if err != nil {
		return err
	}
	if err := n.clearStale(ctx, target); err != nil {
		return err
	}
	return n.mounter.Bind(ctx, source, target, ro, c.GetMount().GetMountFlags())
}

// clearStale unmounts what is left at a path of a device that is gone.
func (n *Node) clearStale(ctx context.Context, target string) error {
	if at, err := n.mounter.At(target); err != nil || !at.Stale {
		return nil // the mount that follows says what is wrong
	}
	return n.mounter.Unmount(ctx, target)
}

// NodeUnpublishVolume takes a volume away from a path.
func (n *Node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkRequest(id, place{"target_path", target}); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	if err := n.mounter.UnmountAndRemove(ctx, target); err != nil {
		return nil, fmt.Errorf("unpublish volume %s: %w", id, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
