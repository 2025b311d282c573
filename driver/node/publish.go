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

// NodePublishVolume mounts a staged volume, or binds its device, at a path. It stages the volume
// again if the device has been removed because its target was unreachable for too long, or if the
// file system has been shut down. Kubernetes itself does not stage a volume again for a replacement
// pod on the same node.
func (n *Node) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	paths := []pathField{{"target_path", target}, {"staging_target_path", staging}}
	if err := errors.Join(checkRequest(id, paths...), request.CheckCapabilities(req.GetVolumeCapability())); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	again := false
	if err := n.publishVolume(ctx, req, &again); err != nil {
		return nil, fmt.Errorf("publish volume %s: %w", id, n.failedPublish(ctx, staging, id, target, again, err))
	}
	n.noteStaged(id, staging)
	return &csi.NodePublishVolumeResponse{}, nil
}

// publishVolume publishes a volume. It sets *again if it must connect the volume again after the
// connection that NodeStageVolume made was lost.
func (n *Node) publishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest, again *bool) error {
	id, staging, target := req.GetVolumeId(), req.GetStagingTargetPath(), req.GetTargetPath()
	record, staged, err := readRecord(staging, id)
	if err != nil {
		return err
	}
	if !staged {
		return fmt.Errorf("%w at %s", request.ErrNotStaged, staging)
	}
	if record.Export, err = withKeysIfGiven(record.Export, req.GetSecrets()); err != nil {
		return err
	}
	if record.passphrases, err = n.passphrasesIfGiven(record, req.GetSecrets()); err != nil {
		return err
	}
	capability := req.GetVolumeCapability()
	if block := capability.GetBlock() != nil; block != record.Block {
		return fmt.Errorf("%w: the volume is staged with a different volume mode", request.ErrConflict)
	}
	if err := n.checkSingleWriter(capability, record, target); err != nil {
		return err
	}
	if err := record.addTarget(staging, target, n.isMounted); err != nil {
		return err
	}
	ro := req.GetReadonly() || request.ReadOnly(capability)
	if record.Block {
		return n.publishDevice(ctx, record, req, ro, again)
	}
	return n.publishMount(ctx, record, req, ro, again)
}

// checkSingleWriter refuses a second path for a volume if its access mode allows only one path.
func (n *Node) checkSingleWriter(c *csi.VolumeCapability, r stageRecord, target string) error {
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

func (n *Node) publishDevice(ctx context.Context, r stageRecord, req *csi.NodePublishVolumeRequest, ro bool, again *bool) error {
	staging, target, c := req.GetStagingTargetPath(), req.GetTargetPath(), req.GetVolumeCapability()
	device, err := n.findDevice(ctx, r)
	if errors.Is(err, connect.ErrNotConnected) {
		n.log.WarnContext(ctx, "device was removed: connecting the volume again", "volume", r.VolumeID)
		*again = true
		device, err = n.attach(ctx, r)
	}
	if err != nil {
		return err
	}
	if r.encrypted() {
		stage := n.mountOf(c, attachment{}) // the volume was staged before, so it must not be formatted
		if device.Path, err = n.open(ctx, staging, r, device.Path, &stage); err != nil {
			return err
		}
	}
	if err := n.clearStale(ctx, target); err != nil {
		return err
	}
	return n.mounter.BindDevice(ctx, device.Path, target, ro)
}

func (n *Node) publishMount(ctx context.Context, r stageRecord, req *csi.NodePublishVolumeRequest, ro bool, again *bool) error {
	staging, target, c := req.GetStagingTargetPath(), req.GetTargetPath(), req.GetVolumeCapability()
	source := stagePath(staging, r.VolumeID)
	err := n.mounter.Check(ctx, source)
	if errors.Is(err, mount.ErrNotMounted) || errors.Is(err, mount.ErrBroken) || errors.Is(err, mount.ErrUnreadable) {
		n.log.WarnContext(ctx, "staging the volume again", "volume", r.VolumeID, "error", err)
		// The volume was staged before, so it either contains a file system or has lost its file
		// system. In both cases, it must not be formatted.
		*again = !n.isConnected(ctx, r)
		err = n.stage(ctx, staging, r, n.mountOf(c, attachment{fsType: req.GetVolumeContext()[request.KeyFSType]}))
	}
	if err != nil {
		return err
	}
	if err := n.clearStale(ctx, target); err != nil {
		return err
	}
	return n.mounter.Bind(ctx, source, target, ro, c.GetMount().GetMountFlags())
}

// clearStale unmounts a path if the device of the mount no longer exists.
func (n *Node) clearStale(ctx context.Context, target string) error {
	if at, err := n.mounter.At(target); err != nil || !at.Stale {
		return nil // the mount by the caller reports any error
	}
	return n.mounter.Unmount(ctx, target)
}

// NodeUnpublishVolume unmounts a volume from a path, and removes the path.
func (n *Node) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := checkRequest(id, pathField{"target_path", target}); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	if err := n.mounter.UnmountAndRemove(ctx, target); err != nil {
		return nil, fmt.Errorf("unpublish volume %s: %w", id, n.failedUnpublish(target, err))
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
