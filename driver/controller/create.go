package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/mkfs"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// defaultSize is the size of a volume if none is requested, as in spdk-csi.
const defaultSize = 1 << 30

// CreateVolume creates a volume, empty or as a copy, or finds the one that an earlier call created.
func (c *Controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	// Parse the request.
	if req.GetName() == "" {
		return nil, fmt.Errorf("%w: name is missing", request.ErrInvalid)
	}
	if err := request.CheckCapabilities(req.GetVolumeCapabilities()...); err != nil {
		return nil, err
	}
	wanted, err := class.Parse(req.GetParameters(), req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	least, most, err := sizes(req.GetCapacityRange(), defaultSize)
	if err != nil {
		return nil, err
	}
	origin, source, err := contentSource(req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if wanted.Encryption != class.NoEncryption && origin.UUID == "" && request.Shared(req.GetVolumeCapabilities()...) {
		return nil, fmt.Errorf("%w: an empty encrypted volume for several nodes: each would encrypt it with a key of its own; create it with ReadWriteOnce, use it once, and copy it", request.ErrUnsupported)
	}
	if err := checkFilesystem(wanted, req.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	where, err := accessibility(req.GetAccessibilityRequirements())
	if err != nil {
		return nil, err
	}
	spec := volume.Spec{Name: req.GetName(), MinBytes: least, MaxBytes: most, Class: wanted}
	failed := func(err error) (*csi.CreateVolumeResponse, error) {
		return nil, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}

	// Allow one call at a time with this name, and no deletion of the source meanwhile.
	claim := c.locks.Claim()
	defer claim.Release()
	if err := claim.Take("name " + volume.LvolName(spec.Name)); err != nil {
		return nil, err
	}
	if err := claimSource(claim, origin); err != nil {
		return failed(err)
	}

	var made located
	if origin.UUID == "" {
		// Each target that may hold a volume of this name is asked before one makes it.
		asked, candidates, err := c.targetsFor(spec.Name, wanted, where, request.Shared(req.GetVolumeCapabilities()...))
		if err != nil {
			return failed(err)
		}
		services, err := c.openTargets(asked, req.GetSecrets(), provisionerSecret)
		if err != nil {
			return failed(err)
		}
		found, err := c.survey(ctx, services, spec)
		if err != nil {
			return failed(err)
		}
		if made, err = found.only(spec.Name); errors.Is(err, volume.ErrNotFound) {
			if request.RawBlock(req.GetVolumeCapabilities()...) {
				if candidates, err = found.forRawBlock(ctx, candidates); err != nil {
					return failed(err)
				}
			}
			made, err = found.createInFirst(ctx, candidates, spec, where)
		} else if err == nil {
			err = made.target.Matches(ctx, made.Volume, spec, origin)
		}
		if err != nil {
			return failed(err)
		}
	} else {
		// A copy is created in the lvstore of its source.
		target, err := c.openTarget(source, req.GetSecrets(), provisionerSecret)
		if err != nil {
			return failed(err)
		}
		if request.Shared(req.GetVolumeCapabilities()...) {
			if err := target.CheckShareable(); err != nil {
				return failed(err)
			}
		}
		if err := c.targets.checkAuthenticates(target.Name, wanted.Authentication); err != nil {
			return failed(err)
		}
		if request.RawBlock(req.GetVolumeCapabilities()...) {
			if err := target.CheckRawBlock(ctx); err != nil {
				return failed(err)
			}
		}
		at, err := c.targets.placed(target.Name)
		if err != nil {
			return failed(err)
		}
		if _, err := where.Filter([]placement.Target{at}); err != nil {
			return failed(fmt.Errorf("%w: the source is on target %s, and a copy is created on the same target", err, target.Name))
		}
		err = placement.CheckCopy(wanted, at, func() (string, error) {
			v, err := target.Get(ctx, origin.UUID)
			return v.Store, err
		})
		if err != nil {
			return failed(err)
		}
		v, err := target.Clone(ctx, origin, spec)
		if err != nil {
			return failed(err)
		}
		made = located{target, v}
	}

	if err := made.target.Limit(ctx, made.Volume, wanted.Limits); err != nil {
		return failed(err)
	}

	// Answer, unless another call is deleting the volume.
	if err := claim.Take(made.UUID); err != nil {
		return nil, err
	}
	config, err := c.targets.config(made.target.Name)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		AccessibleTopology: accessibleTopology(config),
		VolumeId:           request.VolumeID{Target: made.target.Name, UUID: made.UUID}.String(),
		CapacityBytes:      made.SizeBytes,
		VolumeContext:      withClaim(withAuthentication(volumeContext(config, made.Volume, wanted, origin), hostauth.Method(wanted.Authentication), false), req.GetParameters()),
		ContentSource:      req.GetVolumeContentSource(),
	}}, nil
}

// checkFilesystem refuses options that mkfs of the volume's file system may not have. Kubernetes puts the file system into
// the capability; a class may also name it.
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
			return fmt.Errorf("%w: filesystemUUID is for xfs and btrfs: remove it, as a node mounts copies of an ext4 beside their source without it", class.ErrParameter)
		}
	}
	return nil
}

// claimSource locks the source of a copy: a snapshot shared, because several volumes can be restored from it at once; a
// volume exclusively.
func claimSource(claim *request.Claim, origin volume.Origin) error {
	switch {
	case origin.UUID == "":
		return nil
	case origin.Snapshot:
		return claim.Share(origin.UUID)
	}
	return claim.Take(origin.UUID)
}

// allowedTargets returns the targets on which volumes of a class can be made; if shared, volumes for several nodes.
func (c *Controller) allowedTargets(wanted class.Class, shared bool) ([]placement.Target, error) {
	allowed, err := placement.Targets(c.targets.placement, wanted)
	if err != nil {
		return nil, err
	}
	var able []placement.Target
	for _, t := range allowed {
		err = nil
		if shared {
			err = c.targets.byName[t.Name].CheckShareable()
		}
		if err == nil {
			err = c.targets.checkAuthenticates(t.Name, wanted.Authentication)
		}
		if err == nil {
			able = append(able, t)
		}
	}
	if len(able) == 0 {
		return nil, err
	}
	return able, nil
}

// targetsFor returns the targets that are asked for the volume of a name, and those of them that may take it.
func (c *Controller) targetsFor(name string, wanted class.Class, where placement.Accessibility, shared bool) (asked, candidates []placement.Target, err error) {
	allowed, err := c.allowedTargets(wanted, shared)
	if err != nil {
		return nil, nil, err
	}
	asked, candidates = c.targets.choice.Of(allowed, name)
	if candidates, err = where.Filter(candidates); err != nil {
		return nil, nil, err
	}
	// Repetitions of a call name the same topologies until it is refused, and then nothing was made in these.
	asked, err = where.Filter(asked)
	return asked, candidates, err
}

// contentSource returns the source of a copy, and its id. Both are empty for an empty volume.
func contentSource(s *csi.VolumeContentSource) (volume.Origin, request.VolumeID, error) {
	var text string
	var from volume.Origin
	switch t := s.GetType().(type) {
	case nil:
		if s != nil {
			return from, request.VolumeID{}, fmt.Errorf("%w: volume_content_source is neither a snapshot nor a volume", request.ErrInvalid)
		}
		return from, request.VolumeID{}, nil
	case *csi.VolumeContentSource_Snapshot:
		text, from.Snapshot = t.Snapshot.GetSnapshotId(), true
	case *csi.VolumeContentSource_Volume:
		text = t.Volume.GetVolumeId()
	}
	if text == "" {
		return from, request.VolumeID{}, fmt.Errorf("%w: volume_content_source has no id", request.ErrInvalid)
	}
	id, err := request.ParseVolumeID(text)
	if err == nil && id.Target == "" {
		err = fmt.Errorf("%w: %q: the source must be a volume or snapshot of this driver, with an id of the form TARGET:UUID", request.ErrNoSuchID, text)
	}
	from.UUID = id.UUID
	return from, id, err
}

// sizes returns the smallest and the largest size that a capacity range allows. If the range requests none, the smallest is
// byDefault, or less if the limit is less. A largest size of 0 is no limit.
func sizes(r *csi.CapacityRange, byDefault int64) (least, most int64, err error) {
	least, most = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case least < 0 || most < 0:
		return 0, 0, fmt.Errorf("%w: capacity_range has negative numbers", request.ErrInvalid)
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

// maxSize is the largest size that can be requested. It is small enough to be rounded up without an overflow.
const maxSize = 1 << 60
