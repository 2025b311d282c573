package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/mkfs"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// defaultSize is a volume's size if none is requested, as in SPDK's spdk-csi.
const defaultSize = 1 << 30

// A creation is a parsed request to create a volume.
type creation struct {
	spec             volume.Spec
	origin           volume.Origin    // the source of a copy; empty for an empty volume
	source           request.VolumeID // the id of the source
	where            placement.Accessibility
	shared, rawBlock bool // usable by several nodes; without a file system
	secrets          map[string]string
}

// CreateVolume creates an empty volume or a copy, or finds the volume that an earlier call created.
func (c *Controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	n, err := parseCreation(req)
	if err != nil {
		return nil, err
	}
	failed := func(err error) (*csi.CreateVolumeResponse, error) {
		return nil, fmt.Errorf("create volume %q: %w", n.spec.Name, err)
	}

	// Allow only one call with this name at a time, and no deletion of the source during the call.
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take("name " + volume.LvolName(n.spec.Name)); err != nil {
		return nil, err
	}
	if n.spec.Class.Replicas > 1 {
		v, err := c.createReplicated(ctx, claim, n, req.GetParameters())
		if err != nil {
			return failed(err)
		}
		return &csi.CreateVolumeResponse{Volume: v}, nil
	}
	if err := claimSource(claim, n.origin); err != nil {
		return failed(err)
	}

	create := c.createEmpty
	if n.origin.UUID != "" {
		create = c.createCopy
	}
	made, err := create(ctx, n)
	if err != nil {
		return failed(err)
	}
	if err := made.target.Limit(ctx, made.Volume, n.spec.Class.Limits); err != nil {
		return failed(err)
	}

	// Fail if another call is deleting the volume.
	if err := claim.Take(made.UUID); err != nil {
		return nil, err
	}
	target, err := c.targets.config(made.target.Name)
	if err != nil {
		return nil, err
	}
	attributes := withAuthentication(volumeContext(target, made.Volume, n.spec.Class, n.origin), hostauth.Method(n.spec.Class.Authentication), false)
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		AccessibleTopology: accessibleTopology(target),
		VolumeId:           request.VolumeID{Target: made.target.Name, UUID: made.UUID}.String(),
		CapacityBytes:      made.SizeBytes,
		VolumeContext:      withClaim(attributes, req.GetParameters()),
		ContentSource:      req.GetVolumeContentSource(),
	}}, nil
}

// parseCreation parses a request and makes all checks that need no target.
func parseCreation(req *csi.CreateVolumeRequest) (n creation, err error) {
	if req.GetName() == "" {
		return n, fmt.Errorf("%w: name is missing", request.ErrInvalid)
	}
	capabilities := req.GetVolumeCapabilities()
	if err := request.CheckCapabilities(capabilities...); err != nil {
		return n, err
	}
	n.shared, n.rawBlock, n.secrets = request.Shared(capabilities...), request.RawBlock(capabilities...), req.GetSecrets()
	n.spec.Name = req.GetName()
	if n.spec.Class, err = class.Parse(req.GetParameters(), req.GetMutableParameters()); err != nil {
		return n, err
	}
	if n.spec.MinBytes, n.spec.MaxBytes, err = sizes(req.GetCapacityRange(), defaultSize); err != nil {
		return n, err
	}
	if n.origin, n.source, err = contentSource(req.GetVolumeContentSource()); err != nil {
		return n, err
	}
	if n.spec.Class.Encryption != class.NoEncryption && n.origin.UUID == "" && n.shared {
		return n, fmt.Errorf("%w: an empty encrypted volume cannot be created for several nodes, because each would encrypt it with its own key: create it with ReadWriteOnce, use it once, and copy it", request.ErrUnsupported)
	}
	if err := checkFilesystem(n.spec.Class, capabilities); err != nil {
		return n, err
	}
	if n.spec.Class.Replicas > 1 {
		if err := checkReplicated(n, capabilities); err != nil {
			return n, err
		}
	}
	n.where, err = accessibility(req.GetAccessibilityRequirements())
	return n, err
}

// checkFilesystem rejects options that are not allowed for the mkfs of the volume's file system.
// The capability, Kubernetes or the class names the file system.
func checkFilesystem(wanted class.Class, capabilities []*csi.VolumeCapability) error {
	types := []string{wanted.FSType}
	for _, c := range capabilities {
		if fsType := c.GetMount().GetFsType(); fsType != "" {
			types = append(types[:0], fsType)
		}
	}
	for _, fsType := range types {
		if err := mkfs.Check(fsType, wanted.MkfsOptions); err != nil {
			return err
		}
		if wanted.VolumeUUID && (fsType == "" || fsType == mkfs.Ext4) {
			return fmt.Errorf("%w: filesystemUUID is only for xfs and btrfs: remove it; nodes can mount a copy of an ext4 file system alongside its source, even if both have the same UUID", class.ErrParameter)
		}
	}
	return nil
}

// sizes returns the smallest and largest sizes that a capacity range allows. If the range sets no
// minimum, the smallest size is byDefault, or the range's limit if that is smaller. A largest size
// of 0 means no limit.
func sizes(r *csi.CapacityRange, byDefault int64) (least, most int64, err error) {
	least, most = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case least < 0 || most < 0:
		return 0, 0, fmt.Errorf("%w: required_bytes and limit_bytes in capacity_range must not be negative", request.ErrInvalid)
	case most > 0 && least > most:
		return 0, 0, fmt.Errorf("%w: required_bytes is %d, more than limit_bytes, %d", volume.ErrOutOfRange, least, most)
	case least > maxSize:
		return 0, 0, fmt.Errorf("%w: required_bytes is %d, more than any volume can have", volume.ErrOutOfRange, least)
	case least == 0 && most > 0:
		least = min(byDefault, max(1, most/volume.MiB*volume.MiB))
	case least == 0:
		least = byDefault
	}
	return least, most, nil
}

// maxSize is the largest size that can be requested. Rounding it up does not overflow.
const maxSize = 1 << 60
