package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// CreateSnapshot takes a snapshot of a volume, or finds the snapshot that an earlier call took.
func (c *Controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	switch {
	case req.GetName() == "":
		return nil, fmt.Errorf("%w: name is missing", request.ErrInvalid)
	case req.GetSourceVolumeId() == "":
		return nil, fmt.Errorf("%w: source_volume_id is missing", request.ErrInvalid)
	}
	if err := class.CheckSnapshot(req.GetParameters()); err != nil {
		return nil, err
	}
	source, err := request.ParseVolumeID(req.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take("snapshot name " + req.GetName()); err != nil {
		return nil, err
	}
	if err := claim.Take(source.UUID); err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, source, req.GetSecrets(), snapshotterSecret)
	if err != nil {
		return nil, err
	}
	s, err := service.Snapshot(ctx, req.GetName(), source.UUID)
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotMessage(service.Name, s)}, nil
}

func snapshotMessage(target string, s volume.Snapshot) *csi.Snapshot {
	m := &csi.Snapshot{
		SnapshotId:   request.VolumeID{Target: target, UUID: s.UUID}.String(),
		SizeBytes:    s.SizeBytes,
		CreationTime: timestamppb.New(s.CreatedAt),
		ReadyToUse:   true,
	}
	if s.CreatedAt.IsZero() {
		m.CreationTime = &timestamppb.Timestamp{} // SPDK's spdk-csi records no time, but CSI requires one that never changes
	}
	if s.Group != (volume.GroupID{}) {
		m.GroupSnapshotId = formatGroupID(target, s.Group)
	}
	if s.SourceUUID != "" {
		m.SourceVolumeId = request.VolumeID{Target: target, UUID: s.SourceUUID}.String()
	}
	return m
}

// DeleteSnapshot deletes a snapshot.
func (c *Controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, fmt.Errorf("%w: snapshot_id is missing", request.ErrInvalid)
	}
	id, err := request.ParseVolumeID(req.GetSnapshotId())
	if errors.Is(err, request.ErrNoSuchID) || err == nil && id.Target == "" {
		c.log.WarnContext(ctx, "nothing to delete: this driver did not create the snapshot", "snapshot", req.GetSnapshotId())
		return &csi.DeleteSnapshotResponse{}, nil
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	service, err := c.openTarget(id, req.GetSecrets(), snapshotterSecret)
	if err != nil {
		return nil, err
	}
	if err := service.DeleteSnapshot(ctx, id.UUID, claim.Take); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot describes one snapshot.
func (c *Controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, fmt.Errorf("%w: snapshot_id is missing", request.ErrInvalid)
	}
	m, err := c.snapshot(ctx, req.GetSnapshotId(), req.GetSecrets())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: m}, nil
}

func (c *Controller) snapshot(ctx context.Context, text string, secrets map[string]string) (*csi.Snapshot, error) {
	id, err := request.ParseVolumeID(text)
	if err == nil && id.Target == "" {
		err = fmt.Errorf("%w: %q is not of the form TARGET:UUID", request.ErrNoSuchID, text)
	}
	if err != nil {
		return nil, err
	}
	service, err := c.openTarget(id, secrets, listSecret)
	if err != nil {
		return nil, err
	}
	s, err := service.GetSnapshot(ctx, id.UUID)
	if errors.Is(err, volume.ErrWrongKind) {
		return nil, fmt.Errorf("%w: %w", request.ErrNoSuchID, err)
	}
	if err != nil {
		return nil, err
	}
	if s, err = service.WithSource(ctx, s); err != nil {
		return nil, err
	}
	return snapshotMessage(service.Name, s), nil
}
