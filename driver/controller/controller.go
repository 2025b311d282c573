package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/outage"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// Controller implements CSI's controller, group controller and snapshot metadata services.
type Controller struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedSnapshotMetadataServer
	targets  *targets
	locks    *request.Locks
	nodes    *nodeNames
	measured *measured
	// credentialsFile is the path of the credentials for calls without a secret. It is empty if
	// there is no such file.
	credentialsFile string
	// witnesses stores the witnesses of replicated volumes. It is nil if the controller does not
	// support replicated volumes.
	witnesses Witnesses
	log       *slog.Logger
}

// New returns a controller for a configuration. credentialsFile is the result of
// config.CredentialsFile, and may be empty.
func New(c *config.Config, credentialsFile string, log *slog.Logger) (*Controller, error) {
	t, err := newTargets(c)
	if err != nil {
		return nil, err
	}
	t.outages = outage.New(log, nil)
	warnOf(c, log)
	return &Controller{targets: t, locks: request.NewLocks(), nodes: &nodeNames{}, measured: &measured{}, credentialsFile: credentialsFile, log: log}, nil
}

// warnOf logs a warning for each unsafe setting.
func warnOf(c *config.Config, log *slog.Logger) {
	for _, n := range c.Nodes {
		if strings.HasPrefix(n.RPCURL, "http:") {
			log.Warn("credentials are sent unencrypted: use https:// with ca or caFile", "target", n.Name, "rpcURL", n.RPCURL)
		}
		if len(n.Lvstores) == 0 {
			log.Warn("lvstores is not configured: a volume in an lvstore that is not loaded when the controller starts counts as deleted: name the target's lvstores in config.json", "target", n.Name)
		}
	}
}

// Observe makes the controller count its calls to targets. Call Observe before the controller
// serves calls.
func (c *Controller) Observe(m *metrics.Metrics) { c.targets.metrics = m }

// HasTopology reports whether some targets cannot be reached from every node.
func (c *Controller) HasTopology() bool { return len(c.targets.configs[0].Topology) > 0 }

// Close closes the connections to the proxies.
func (c *Controller) Close() { c.targets.close() }

// The names of StorageClass parameters that, with the suffixes -name and -namespace, make
// Kubernetes send a Secret with each call.
const (
	provisionerSecret = "csi.storage.k8s.io/provisioner-secret"
	publishSecret     = "csi.storage.k8s.io/controller-publish-secret"
	expandSecret      = "csi.storage.k8s.io/controller-expand-secret"
	snapshotterSecret = "csi.storage.k8s.io/snapshotter-secret"
	listSecret        = "csi.storage.k8s.io/snapshotter-list-secret"
)

// openTarget opens the target named in a volume id, with a call's credentials.
func (c *Controller) openTarget(id request.VolumeID, secrets map[string]string, secretParam string) (*volume.Service, error) {
	if id.Replicated() {
		return nil, errReplicated(id)
	}
	if _, err := c.targets.config(id.Target); err != nil {
		return nil, err
	}
	tokens, err := config.Credentials(secrets, c.credentialsFile, secretParam)
	if err != nil {
		return nil, err
	}
	return c.targets.open(id.Target, tokens)
}

// findTarget opens the target named in a volume id. The id of a manually provisioned volume
// contains no target; for such a volume, findTarget queries each target.
func (c *Controller) findTarget(ctx context.Context, id request.VolumeID, secrets map[string]string, secretParam string) (*volume.Service, error) {
	if id.Target != "" {
		return c.openTarget(id, secrets, secretParam)
	}
	services, err := c.openTargets(c.targets.placement, secrets, secretParam)
	if err != nil {
		return nil, err
	}
	holds := make([]bool, len(services))
	g, gctx := errgroup.WithContext(ctx)
	for i, s := range services {
		g.Go(func() error {
			_, err := s.GetVolume(gctx, id.UUID)
			holds[i] = err == nil
			if errors.Is(err, volume.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if i := slices.Index(holds, true); i >= 0 {
		return services[i], nil
	}
	return nil, fmt.Errorf("volume %s: %w on any target in config.json", id, volume.ErrNotFound)
}

// openTargets opens targets with a call's credentials.
func (c *Controller) openTargets(targets []placement.Target, secrets map[string]string, secretParam string) ([]*volume.Service, error) {
	tokens, err := config.Credentials(secrets, c.credentialsFile, secretParam)
	if err != nil {
		return nil, err
	}
	return c.targets.openEach(targets, tokens)
}

// DeleteVolume deletes a volume that is not published.
func (c *Controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if errors.Is(err, request.ErrNoSuchID) || err == nil && id.Target == "" {
		// This driver has never created a volume with an id of this form. A manually provisioned
		// volume must be deleted manually.
		c.log.WarnContext(ctx, "nothing to delete: this driver did not create the volume", "volume", req.GetVolumeId())
		return &csi.DeleteVolumeResponse{}, nil
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	if id.Replicated() {
		return &csi.DeleteVolumeResponse{}, c.deleteReplicated(ctx, id, req.GetSecrets())
	}
	service, err := c.openTarget(id, req.GetSecrets(), provisionerSecret)
	if err != nil {
		return nil, err
	}
	if err := service.Delete(ctx, id.UUID); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume grows a volume, whether it is in use or not.
func (c *Controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	case req.GetCapacityRange() == nil:
		return nil, fmt.Errorf("%w: capacity_range is missing", request.ErrInvalid)
	case req.GetVolumeCapability() != nil:
		if err := request.CheckCapabilities(req.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	least, most, err := sizes(req.GetCapacityRange(), 0)
	if err != nil {
		return nil, err
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), expandSecret)
	if err != nil {
		return nil, err
	}
	size, err := service.Expand(ctx, id.UUID, least, most)
	if err != nil {
		return nil, err
	}
	// Even for a raw block volume, the node must be called so that its kernel rereads the size.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume applies a VolumeAttributesClass to a volume by changing its I/O limits.
// Limits that the class omits remain unchanged.
func (c *Controller) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	limits, err := class.ParseMutable(req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), expandSecret)
	if err != nil {
		return nil, err
	}
	v, err := service.GetVolume(ctx, id.UUID)
	if err != nil {
		return nil, err
	}
	if err := service.Limit(ctx, v, limits); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
