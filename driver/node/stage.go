package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// NodeStageVolume connects a volume and mounts its file system. A raw block volume is only
// connected. A call that fails undoes its own steps; see failedStage.
func (n *Node) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkRequest(id, pathField{"staging_target_path", staging}); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	record, staged, err := readRecord(staging, id)
	before := n.inUse(staging, id, record)
	if err == nil {
		err = n.stageVolume(ctx, req, record, staged)
	}
	if err != nil {
		return nil, fmt.Errorf("stage volume %s: %w", id, n.failedStage(ctx, staging, id, before, err))
	}
	n.noteStaged(id, staging)
	return &csi.NodeStageVolumeResponse{}, nil
}

// stageVolume stages a volume. staged means that an earlier call has left a record.
func (n *Node) stageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest, record stageRecord, staged bool) error {
	if err := request.CheckCapabilities(req.GetVolumeCapability()); err != nil {
		return err
	}
	a, err := readAttachment(req.GetVolumeId(), n.id, req.GetVolumeContext(), req.GetPublishContext(), n.topology)
	if err != nil {
		return err
	}
	if a.export, err = withKeys(a.export, req.GetSecrets()); err != nil {
		return err
	}
	passphrases, err := n.passphrases(req.GetVolumeId(), a.encryption, req.GetSecrets())
	if err != nil {
		return err
	}
	if err := n.checkReplicated(a.replicated, record, staged); err != nil {
		return err
	}
	if staged && record.Export.Target() != a.export.Target() {
		return fmt.Errorf("%w: %s is already staged at this path, but the request is for %s: unstage the staged volume first", request.ErrConflict, record.Export, a.export)
	}
	block := req.GetVolumeCapability().GetBlock() != nil
	if staged && record.Block != block {
		return fmt.Errorf("%w: the volume is staged with a different volume mode: unstage it first", request.ErrConflict)
	}
	if staged && record.encrypted() != a.encryption.requested() {
		return fmt.Errorf("%w: the volume is staged with different encryption: unstage it first", request.ErrConflict)
	}
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	used := usedID(id, a.replicated)
	if err := n.forbidFormat(used, &a); err != nil {
		return err
	}
	fresh := stageRecord{VolumeID: id, Export: a.export, Replicated: a.replicated, Block: block, Encryption: a.encryption, Targets: record.Targets, passphrases: passphrases}
	if err := fresh.write(staging); err != nil {
		return err
	}
	if err := n.stage(ctx, staging, fresh, n.mountOf(req.GetVolumeCapability(), a)); err != nil || request.ReadOnly(req.GetVolumeCapability()) {
		return err
	}
	return n.used.add(used) // record this before a pod can write to the volume
}

// forbidFormat revokes the permission to format if the volume has already been used on this node.
func (n *Node) forbidFormat(id string, a *attachment) error {
	used, err := n.used.has(id)
	if used {
		a.mayFormat, a.mayFinish = false, false
	}
	return err
}

// mountOf returns a description of how to mount a volume, without its device and path.
func (n *Node) mountOf(c *csi.VolumeCapability, a attachment) mount.Stage {
	fsType := c.GetMount().GetFsType()
	if fsType == "" {
		fsType = a.fsType
	}
	return mount.Stage{
		FSType: fsType, MkfsOptions: a.mkfsOptions, UUID: a.uuid, Flags: c.GetMount().GetMountFlags(), ReadOnly: request.ReadOnly(c), Shared: request.Shared(c),
		MayFormat: a.mayFormat && !request.ReadOnly(c), MayFinish: a.mayFinish && !request.ReadOnly(c),
	}
}

// stage connects and mounts the volume. It skips steps that an earlier call has done.
func (n *Node) stage(ctx context.Context, staging string, r stageRecord, mountStage mount.Stage) error {
	device, err := n.attach(ctx, r)
	if err == nil && r.encrypted() {
		device.Path, err = n.open(ctx, staging, r, device.Path, &mountStage)
	}
	if err != nil || r.Block {
		return err
	}
	mountStage.Device, mountStage.Path = device.Path, stagePath(staging, r.VolumeID)
	return n.mounter.FormatAndMount(ctx, mountStage)
}

// NodeUnstageVolume unmounts and disconnects a volume. A repeated call continues where the earlier
// call stopped.
func (n *Node) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, staging := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := checkRequest(id, pathField{"staging_target_path", staging}); err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id); err != nil {
		return nil, err
	}
	record, staged, err := readRecord(staging, id)
	if !staged {
		record = stageRecord{VolumeID: id}
	}
	if err == nil {
		err = n.unstage(ctx, staging, record)
	}
	if err != nil {
		return nil, fmt.Errorf("unstage volume %s: %w", id, n.failedUnstage(staging, id, err))
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n *Node) unstage(ctx context.Context, staging string, r stageRecord) error {
	n.noteUnstaged(r.VolumeID)
	if err := n.mounter.UnmountAndRemove(ctx, stagePath(staging, r.VolumeID)); err != nil {
		return err
	}
	if err := n.closeEncrypted(ctx, r); err != nil {
		return err
	}
	if err := n.detach(ctx, r); err != nil {
		return err
	}
	return removeRecord(staging)
}
