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

// The names of VolumeGroupSnapshotClass parameters that, with the suffixes -name and -namespace,
// make Kubernetes send a Secret with each call.
const (
	groupSnapshotterSecret = "csi.storage.k8s.io/group-snapshotter-secret"
	groupGetSecret         = "csi.storage.k8s.io/group-snapshotter-get-secret"
)

// GroupControllerGetCapabilities lists the controller's capabilities for volume groups.
func (c *Controller) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot takes simultaneous snapshots of several volumes, or finds the snapshots
// that an earlier call took.
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
	var members []volume.Members
	seen := map[string]bool{}
	for _, text := range req.GetSourceVolumeIds() {
		id, err := request.ParseVolumeID(text)
		if err != nil {
			return nil, err
		}
		if seen[id.UUID] {
			return nil, fmt.Errorf("%w: source_volume_ids contains %s twice", request.ErrInvalid, text)
		}
		seen[id.UUID] = true
		if err := claim.Take(id.UUID); err != nil {
			return nil, err
		}
		s, err := c.findTarget(ctx, id, req.GetSecrets(), groupSnapshotterSecret)
		if err != nil {
			return nil, err
		}
		members = addMember(members, s, id.UUID)
	}
	g, err := volume.TakeGroup(ctx, req.GetName(), members, func() ([]volume.Members, error) {
		return c.otherTargets(members, req.GetSecrets(), groupSnapshotterSecret)
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(g)}, nil
}

// addMember adds a volume or snapshot of a target to members.
func addMember(members []volume.Members, s *volume.Service, uuid string) []volume.Members {
	i := slices.IndexFunc(members, func(m volume.Members) bool { return m.Service.Name == s.Name })
	if i < 0 {
		return append(members, volume.Members{Service: s, UUIDs: []string{uuid}})
	}
	members[i].UUIDs = append(members[i].UUIDs, uuid)
	return members
}

// otherTargets opens all targets that have no members of a group.
func (c *Controller) otherTargets(members []volume.Members, secrets map[string]string, secretParam string) (others []volume.Members, err error) {
	services, err := c.openTargets(c.targets.placement, secrets, secretParam)
	for _, s := range services {
		if !slices.ContainsFunc(members, func(m volume.Members) bool { return m.Service.Name == s.Name }) {
			others = append(others, volume.Members{Service: s})
		}
	}
	return others, err
}

// DeleteVolumeGroupSnapshot deletes a group snapshot with its members.
func (c *Controller) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, fmt.Errorf("%w: group_snapshot_id is missing", request.ErrInvalid)
	}
	id, target, ok := parseGroupID(req.GetGroupSnapshotId())
	if !ok {
		c.log.WarnContext(ctx, "nothing to delete: this driver did not create the group snapshot", "group", req.GetGroupSnapshotId())
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	members, err := c.openMembers(target, req.GetSnapshotIds(), req.GetSecrets(), groupSnapshotterSecret)
	if err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(groupClaim(id.Hash)); err != nil {
		return nil, err
	}
	for _, m := range members {
		for _, uuid := range m.UUIDs {
			if err := claim.Take(uuid); err != nil {
				return nil, err
			}
		}
	}
	if err := volume.DeleteGroup(ctx, id, members, claim.Take); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot describes a group snapshot if all of its members exist.
func (c *Controller) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, fmt.Errorf("%w: group_snapshot_id is missing", request.ErrInvalid)
	}
	id, target, ok := parseGroupID(req.GetGroupSnapshotId())
	if !ok {
		return nil, fmt.Errorf("%w: %q is not the id of a group snapshot", request.ErrNoSuchID, req.GetGroupSnapshotId())
	}
	members, err := c.openMembers(target, req.GetSnapshotIds(), req.GetSecrets(), groupGetSecret)
	if err != nil {
		return nil, err
	}
	g, err := volume.GetGroup(ctx, id, members)
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupMessage(g)}, nil
}

func groupMessage(g volume.Group) *csi.VolumeGroupSnapshot {
	m := &csi.VolumeGroupSnapshot{CreationTime: timestamppb.New(g.CreatedAt), ReadyToUse: true}
	for _, s := range g.Snapshots {
		m.GroupSnapshotId = formatGroupID(s.Target, g.ID)
		m.Snapshots = append(m.Snapshots, snapshotMessage(s.Target, s.Snapshot))
	}
	return m
}

// groupClaim returns the name of the lock for a group, which every call for that group acquires.
func groupClaim(hash string) string { return "group snapshot " + hash }

// formatGroupID returns the id of a group snapshot that has a member on target. The id contains the
// target's name only if all members are on that target, because several names would exceed the
// maximum length of an id.
func formatGroupID(target string, id volume.GroupID) string {
	if id.Several() {
		return id.String()
	}
	return target + ":" + id.String()
}

// parseGroupID parses an id from formatGroupID. target is "" if the members are on several targets.
func parseGroupID(text string) (id volume.GroupID, target string, ok bool) {
	target, rest, named := strings.Cut(text, ":")
	if !named {
		target, rest = "", text
	}
	id, ok = volume.ParseGroupID(rest)
	if !ok || id.Several() == named || named && !request.IsTargetName(target) {
		return volume.GroupID{}, "", false
	}
	return id, target, true
}

// openMembers opens the targets of a group's snapshots. If target is set, all of the snapshots must
// be on that target.
func (c *Controller) openMembers(target string, texts []string, secrets map[string]string, secretParam string) (members []volume.Members, err error) {
	if len(texts) == 0 {
		return nil, fmt.Errorf("%w: snapshot_ids is missing", request.ErrInvalid)
	}
	services, seen := map[string]*volume.Service{}, map[string]bool{}
	for _, text := range texts {
		id, err := request.ParseVolumeID(text)
		switch {
		case err != nil || id.Target == "":
			return nil, fmt.Errorf("%w: snapshot_ids contains %q, which is not a snapshot", volume.ErrMismatch, text)
		case target != "" && id.Target != target:
			return nil, fmt.Errorf("%w: snapshot_ids contains %q, which is not a snapshot of target %s", volume.ErrMismatch, text, target)
		case seen[id.UUID]:
			continue
		}
		seen[id.UUID] = true
		s := services[id.Target]
		if s == nil {
			if s, err = c.openTarget(id, secrets, secretParam); err != nil {
				return nil, err
			}
			services[id.Target] = s
		}
		members = addMember(members, s, id.UUID)
	}
	return members, nil
}
