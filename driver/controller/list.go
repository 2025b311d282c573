package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// ControllerGetCapabilities lists the capabilities of this controller. Calls without a secret are
// included only if the controller has its own credentials.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if c.credentialsFile != "" {
		types = append(types,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
			csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
			csi.ControllerServiceCapability_RPC_GET_CAPACITY,
			csi.ControllerServiceCapability_RPC_GET_VOLUME,
			csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
			csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
		)
	}
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// ListVolumes lists all volumes in the driver's lvstores, including those of other clients, because
// an lvstore does not record who created a volume. A volume is listed as published to a node if its
// export to the node is complete, and if this process has published or unpublished a volume on that
// node.
//
// If an attached volume is not listed as published, Kubernetes publishes it again. Publishing a
// volume again is harmless, and is necessary if the target has lost its configuration. The list
// contains no sizes: Kubernetes does not read them, and each size would need a query to SPDK.
func (c *Controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, next, err := list(ctx, c, nil, "", req.GetStartingToken(), req.GetMaxEntries(), (*volume.Service).ListIDs)
	if err != nil {
		return nil, err
	}
	hosts, err := hostsOf(ctx, volumes)
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for i, v := range volumes {
		if len(hosts[i]) > 0 {
			c.measured.stillPublished(v.entry)
		}
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: &csi.Volume{VolumeId: v.id(v.entry)},
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: c.nodes.of(hosts[i])},
		})
	}
	return resp, nil
}

// hostsOf returns the hosts that each volume is exported to. It queries several targets
// concurrently.
func hostsOf(ctx context.Context, volumes []listed[string]) ([][]string, error) {
	const targetsInFlight = 16
	hosts := make([][]string, len(volumes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(targetsInFlight)
	for begin, end := 0, 0; begin < len(volumes); begin = end {
		var ids []string
		for end < len(volumes) && volumes[end].target == volumes[begin].target {
			ids = append(ids, volumes[end].entry)
			end++
		}
		g.Go(func() error {
			found, err := volumes[begin].target.Hosts(ctx, ids)
			copy(hosts[begin:], found)
			return err
		})
	}
	return hosts, g.Wait()
}

// ListSnapshots lists one snapshot by its id, a volume's snapshots, or all snapshots.
func (c *Controller) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if text := req.GetSnapshotId(); text != "" {
		m, err := c.snapshot(ctx, text, req.GetSecrets())
		if errors.Is(err, request.ErrNoSuchID) || errors.Is(err, volume.ErrNotFound) ||
			err == nil && req.GetSourceVolumeId() != "" && req.GetSourceVolumeId() != m.GetSourceVolumeId() {
			return &csi.ListSnapshotsResponse{}, nil
		}
		if err != nil {
			return nil, err
		}
		return &csi.ListSnapshotsResponse{Entries: []*csi.ListSnapshotsResponse_Entry{{Snapshot: m}}}, nil
	}
	var source request.VolumeID
	if text := req.GetSourceVolumeId(); text != "" {
		var err error
		if source, err = request.ParseVolumeID(text); err != nil {
			return &csi.ListSnapshotsResponse{}, nil
		}
	}
	listOf := func(s *volume.Service, ctx context.Context, p volume.Page) ([]volume.Snapshot, string, error) {
		if source.Target != "" && source.Target != s.Name {
			return nil, "", nil
		}
		return s.ListSnapshots(ctx, source.UUID, p)
	}
	entries, next, err := list(ctx, c, req.GetSecrets(), listSecret, req.GetStartingToken(), req.GetMaxEntries(), listOf)
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, e := range entries {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotMessage(e.target.Name, e.entry)})
	}
	return resp, nil
}

// A listed is an entry and its target.
type listed[T any] struct {
	target *volume.Service
	entry  T
}

func (l listed[T]) id(uuid string) string {
	return request.VolumeID{Target: l.target.Name, UUID: uuid}.String()
}

// list reads one page of all targets' entries, ordered by target name. A page token is the last id
// of the previous page, so it remains valid when entries are created and deleted. list fails if a
// target does not respond, because callers would mistake missing volumes for deleted ones.
func list[T any](ctx context.Context, c *Controller, secrets map[string]string, secretParam, token string, most int32,
	listOf func(*volume.Service, context.Context, volume.Page) ([]T, string, error)) (entries []listed[T], next string, err error) {
	if most < 0 {
		return nil, "", fmt.Errorf("%w: max_entries is negative", request.ErrInvalid)
	}
	var after request.VolumeID
	if token != "" {
		if after, err = request.ParseVolumeID(token); err != nil || after.Target == "" {
			return nil, "", fmt.Errorf("%w: %q: repeat the call without it, to list from the beginning", request.ErrBadToken, token)
		}
	}
	services, err := c.openTargets(c.targets.placement, secrets, secretParam)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(services, func(a, b *volume.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range services {
		page := volume.Page{Max: int(most)}
		switch {
		case s.Name < after.Target:
			continue
		case s.Name == after.Target:
			page.After = after.UUID
		}
		if most > 0 {
			if page.Max = int(most) - len(entries); page.Max == 0 {
				return entries, next, nil // the next page may be empty
			}
		}
		part, more, err := listOf(s, ctx, page)
		if err != nil {
			return nil, "", err
		}
		for _, e := range part {
			entries = append(entries, listed[T]{s, e})
		}
		if more != "" {
			return entries, request.VolumeID{Target: s.Name, UUID: more}.String(), nil
		}
		next = request.VolumeID{Target: s.Name, UUID: lastUUID}.String()
	}
	return entries, "", nil
}

// lastUUID sorts after all other UUIDs, so a token that contains it continues with the next target.
const lastUUID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// GetCapacity returns how much more space can be provisioned, limited to the requested topology if
// there is one. Targets that do not respond count as zero.
func (c *Controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(req.GetVolumeCapabilities()) > 0 {
		if err := request.CheckCapabilities(req.GetVolumeCapabilities()...); errors.Is(err, request.ErrUnsupported) {
			return &csi.GetCapacityResponse{}, nil // no volume with these capabilities can be created
		} else if err != nil {
			return nil, err
		}
	}
	wanted, err := class.Parse(req.GetParameters(), nil)
	if err != nil {
		return nil, err
	}
	return c.capacityOf(ctx, wanted, req)
}

// capacityOf returns how much more space can be provisioned for volumes of a class.
func (c *Controller) capacityOf(ctx context.Context, wanted class.Class, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	targets, err := c.capacityTargets(wanted, request.Shared(req.GetVolumeCapabilities()...))
	if errors.Is(err, export.ErrNotShareable) {
		return &csi.GetCapacityResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if topology := req.GetAccessibleTopology(); topology != nil {
		where, err := accessibility(&csi.TopologyRequirement{Requisite: []*csi.Topology{topology}})
		if err != nil {
			return nil, err
		}
		if targets, err = where.Filter(targets); errors.Is(err, placement.ErrNoTopology) {
			return &csi.GetCapacityResponse{}, nil // nothing can be created there
		} else if err != nil {
			return nil, err
		}
	}
	services, err := c.openTargets(targets, nil, "")
	if err != nil {
		return nil, err
	}
	found, failures := c.surveyStores(ctx, services, wanted)
	if len(failures) == len(services) {
		return nil, errors.Join(failures...)
	}
	for _, err := range failures {
		if target, kind := driver.Outage(err, ""); kind == "" || c.targets.outages.Failed(target, kind, "GetCapacity", err.Error()) {
			c.log.WarnContext(ctx, "a target did not respond: its capacity is not counted", "error", err)
		}
	}
	stores, err := placement.Stores(found.stores, wanted)
	if err != nil {
		return nil, err
	}
	capacity := placement.CapacityOf(stores)
	if wanted.Replicas > 1 {
		capacity = placement.PairCapacity(stores, byName(targets), wanted.ReplicaSpread, replica.HeadBytes)
	}
	resp := &csi.GetCapacityResponse{AvailableCapacity: capacity.Bytes, MaximumVolumeSize: wrapperspb.Int64(capacity.MaxBytes)}
	if capacity.MinBytes > 0 {
		resp.MinimumVolumeSize = wrapperspb.Int64(capacity.MinBytes)
	}
	return resp, nil
}

// capacityTargets returns the targets on which volumes of a class can be created.
func (c *Controller) capacityTargets(wanted class.Class, shared bool) ([]placement.Target, error) {
	switch {
	case wanted.Replicas <= 1:
		return c.allowedTargets(wanted, shared)
	case shared:
		return nil, export.ErrNotShareable // only one node at a time can use a replicated volume
	}
	if err := c.checkReplication(); err != nil {
		return nil, err
	}
	return c.replicaTargets(wanted)
}

// ControllerGetVolume describes one volume.
func (c *Controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, id, nil, "")
	if err != nil {
		return nil, err
	}
	v, err := service.GetVolume(ctx, id.UUID)
	if err != nil {
		return nil, err
	}
	hosts, err := service.Hosts(ctx, []string{id.UUID})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: &csi.Volume{VolumeId: id.String(), CapacityBytes: v.SizeBytes},
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: c.nodes.of(hosts[0])},
	}, nil
}
