package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// Parameters of a VolumeGroupSnapshotClass that make Kubernetes send a secret with calls, without -name and -namespace.
const (
	groupSnapshotterSecret = "csi.storage.k8s.io/group-snapshotter-secret"
	groupGetSecret         = "csi.storage.k8s.io/group-snapshotter-get-secret"
)

// GroupControllerGetCapabilities lists what the controller does with groups of volumes.
func (c *Controller) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot takes snapshots of several volumes of one target at the same moment, or finds those that an
// earlier call took.
func (c *Controller) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	switch {
	case req.GetName() == "":
		return nil, fmt.Errorf("%w: name is missing", request.ErrInvalid)
	case len(req.GetSourceVolumeIds()) == 0:
		return nil, fmt.Errorf("%w: source_volume_ids is missing", request.ErrInvalid)
	}
	if err := class.CheckSnapshot(req.GetParameters()); err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(groupClaim(volume.GroupHash(req.GetName()))); err != nil {
		return nil, err
	}
	var service *volume.Service
	var sources []string
	for _, text := range req.GetSourceVolumeIds() {
		id, err := request.ParseVolumeID(text)
		if err != nil {
			return nil, err
		}
		if slices.Contains(sources, id.UUID) {
			return nil, fmt.Errorf("%w: source_volume_ids has %s twice", request.ErrInvalid, text)
		}
		if err := claim.Take(id.UUID); err != nil {
			return nil, err
		}
		s, err := c.findTarget(ctx, id, req.GetSecrets(), groupSnapshotterSecret)
		if err != nil {
			return nil, err
		}
		if service != nil && s.Name != service.Name {
			return nil, fmt.Errorf("%w: %s is on target %s, and %s on target %s: only volumes of one target can be frozen together. Take one group snapshot for each target, or place the volumes on one target",
				volume.ErrNotTogether, req.GetSourceVolumeIds()[0], service.Name, text, s.Name)
		}
		service, sources = s, append(sources, id.UUID)
	}
	g, err := service.SnapshotGroup(ctx, req.GetName(), sources)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(service.Name, g)}, nil
}

// DeleteVolumeGroupSnapshot deletes a group snapshot with its members.
func (c *Controller) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, fmt.Errorf("%w: group_snapshot_id is missing", request.ErrInvalid)
	}
	target, id, ok := parseGroupID(req.GetGroupSnapshotId())
	if !ok {
		c.log.WarnContext(ctx, "nothing to delete: this driver did not create the group snapshot", "group", req.GetGroupSnapshotId())
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	members, err := memberIDs(target, req.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	for _, name := range append(members, groupClaim(id.Hash)) {
		if err := claim.Take(name); err != nil {
			return nil, err
		}
	}
	service, err := c.openTarget(request.VolumeID{Target: target}, req.GetSecrets(), groupSnapshotterSecret)
	if err != nil {
		return nil, err
	}
	if err := service.DeleteGroup(ctx, id, members, claim.Take); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot describes a group snapshot of which all members exist.
func (c *Controller) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, fmt.Errorf("%w: group_snapshot_id is missing", request.ErrInvalid)
	}
	target, id, ok := parseGroupID(req.GetGroupSnapshotId())
	if !ok {
		return nil, fmt.Errorf("%w: %q is not the id of a group snapshot", request.ErrNoSuchID, req.GetGroupSnapshotId())
	}
	members, err := memberIDs(target, req.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	service, err := c.openTarget(request.VolumeID{Target: target}, req.GetSecrets(), groupGetSecret)
	if err != nil {
		return nil, err
	}
	g, err := service.GetGroup(ctx, id, members)
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(service.Name, g)}, nil
}

func groupMessage(target string, g volume.Group) *csi.VolumeGroupSnapshot {
	m := &csi.VolumeGroupSnapshot{GroupSnapshotId: formatGroupID(target, g.ID), CreationTime: timestamppb.New(g.CreatedAt), ReadyToUse: true}
	for _, s := range g.Snapshots {
		m.Snapshots = append(m.Snapshots, snapshotMessage(target, s))
	}
	return m
}

// groupClaim is the name under which calls for groups of one name are claimed.
func groupClaim(hash string) string { return "group snapshot " + hash }

func formatGroupID(target string, id volume.GroupID) string { return target + ":" + id.String() }

func parseGroupID(text string) (target string, id volume.GroupID, ok bool) {
	target, rest, _ := strings.Cut(text, ":")
	if id, ok = volume.ParseGroupID(rest); !ok || !request.IsTargetName(target) {
		return "", volume.GroupID{}, false
	}
	return target, id, true
}

// memberIDs returns the UUIDs of snapshots. The ids must be of snapshots of the target.
func memberIDs(target string, texts []string) (uuids []string, err error) {
	if len(texts) == 0 {
		return nil, fmt.Errorf("%w: snapshot_ids is missing", request.ErrInvalid)
	}
	for _, text := range texts {
		id, err := request.ParseVolumeID(text)
		if err != nil || id.Target != target {
			return nil, fmt.Errorf("%w: snapshot_ids has %q, which is no snapshot of target %s", volume.ErrMismatch, text, target)
		}
		if !slices.Contains(uuids, id.UUID) {
			uuids = append(uuids, id.UUID)
		}
	}
	return uuids, nil
}
