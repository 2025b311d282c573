package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// ControllerPublishVolume exports a volume to a node. It fails if the volume is exported to another
// node, unless the access mode allows several nodes.
func (c *Controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	case req.GetNodeId() == "":
		return nil, fmt.Errorf("%w: node_id is missing", request.ErrInvalid)
	case req.GetReadonly():
		return nil, fmt.Errorf("%w: readonly: this driver does not have the capability PUBLISH_READONLY", request.ErrUnsupported)
	}
	if err := request.CheckCapabilities(req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := request.CheckNodeID(req.GetNodeId()); err != nil {
		return nil, err
	}
	c.nodes.note(req.GetNodeId())
	if c.exportedByHand(req.GetVolumeContext()) {
		return &csi.ControllerPublishVolumeResponse{}, nil
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	host := hostOf(req.GetNodeId())
	if host.Keys, err = requiredKeys(req); err != nil {
		return nil, fmt.Errorf("publish volume %s: %w", id, err)
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	if id.Replicated() {
		return c.publishReplicated(ctx, id, req, host)
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), publishSecret)
	if err != nil {
		return nil, err
	}
	exports := service.Export
	if request.Shared(req.GetVolumeCapability()) {
		exports = service.Share
	}
	var conditions []volume.Precondition
	if request.RawBlock(req.GetVolumeCapability()) {
		conditions = append(conditions, service.CheckRawBlock)
	}
	v, err := exports(ctx, id.UUID, host, conditions...)
	if err != nil {
		return nil, err
	}
	if v.NotListening != nil {
		c.log.WarnContext(ctx, "the target does not listen on some of its addresses", "target", service.Name, "volume", id.UUID, "error", v.NotListening)
	}
	cfg, err := c.targets.config(service.Name)
	if err != nil {
		return nil, err
	}
	pristine, known, err := service.Pristine(ctx, v.Volume)
	if err != nil {
		return nil, err
	}
	c.measured.note(service.Name, v.Volume, req.GetNodeId(), req.GetVolumeContext())
	return &csi.ControllerPublishVolumeResponse{
		PublishContext: withAuthentication(publishContext(cfg, v, mayFormat(pristine, known, req.GetVolumeContext())),
			hostauth.Method(req.GetVolumeContext()[hostauth.KeyMethod]), host.Keys.Both()),
	}, nil
}

// exportedByHand reports whether a volume context comes from a manually written PV for a target
// that is not in config.json. Such a volume was also exported manually, so the driver neither can
// nor needs to export it.
func (c *Controller) exportedByHand(volumeContext map[string]string) bool {
	e, err := connect.ParseExport(volumeContext, nil)
	if err != nil || e.Transport == connect.Loop {
		return false
	}
	return !slices.ContainsFunc(c.targets.configs, func(t config.Target) bool { return hasAddress(t, e.Address) }) &&
		volumeContext[request.KeyMayFormat] == "" && volumeContext[request.KeyStore] == "" // this driver and SPDK's spdk-csi set it
}

func hasAddress(t config.Target, address string) bool {
	return slices.ContainsFunc(t.AllAddresses(), func(a config.Address) bool { return a.TargetAddr == address || a.ListenAddr == address })
}

// HostOf returns the names that targets use to identify a node.
func HostOf(nodeID string) export.Host { return hostOf(nodeID) }

func hostOf(nodeID string) export.Host {
	h := connect.HostOf(nodeID)
	return export.Host{NQN: h.NQN, IQN: h.IQN, Multipath: h.Multipath().NQN}
}

// ControllerUnpublishVolume ends the export of a volume to a node, or to all nodes if the request
// names no node. The target closes the node's connections. From then on, no node formats the
// volume.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	done := &csi.ControllerUnpublishVolumeResponse{}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if errors.Is(err, request.ErrNoSuchID) {
		return done, nil // this driver cannot have published it
	}
	var host *export.Host
	if node := req.GetNodeId(); node != "" {
		if err := request.CheckNodeID(node); err != nil {
			return done, nil // such a node cannot have any published volumes
		}
		host = new(hostOf(node))
		c.nodes.note(node)
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	if id.Replicated() {
		return done, c.unpublishReplicated(ctx, id, req.GetNodeId(), req.GetSecrets())
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), publishSecret)
	if id.Target == "" && errors.Is(err, volume.ErrNotFound) {
		return done, nil // exported manually, or deleted
	}
	if err != nil {
		return nil, err
	}
	if host != nil {
		host.Keys = givenKeys(service.Authenticates(), req.GetSecrets())
	}
	if err := service.Detach(ctx, id.UUID, host); err != nil {
		return nil, err
	}
	c.measured.forget(id.UUID, req.GetNodeId())
	return done, nil
}

// ValidateVolumeCapabilities confirms that a volume has the requested capabilities, or reports why
// not.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	unsupported := request.CheckCapabilities(req.GetVolumeCapabilities()...)
	if errors.Is(unsupported, request.ErrInvalid) {
		return nil, unsupported
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), provisionerSecret)
	if err != nil {
		return nil, err
	}
	if _, err := service.GetVolume(ctx, id.UUID); err != nil {
		return nil, err
	}
	if request.Shared(req.GetVolumeCapabilities()...) && unsupported == nil {
		unsupported = service.Target.CheckShareable()
	}
	if unsupported != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: unsupported.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}
