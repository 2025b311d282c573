package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// defaultSize is the size of a volume for which none is requested, as in spdk-csi.
const defaultSize = 1 << 30

// CreateVolume makes a volume, empty or as a copy, or finds the one that an earlier call made.
func (c *Controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	// What is requested.
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
	spec := volume.Spec{Name: req.GetName(), MinBytes: least, MaxBytes: most, Class: wanted}
	failed := func(err error) (*csi.CreateVolumeResponse, error) {
		return nil, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}

	// One call at a time under this name, and none that deletes the source.
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
		// An empty volume may be on each target that the class allows: all of them are asked before one makes it.
		targets, err := c.allowedTargets(req.GetSecrets(), wanted)
		if err != nil {
			return failed(err)
		}
		found, err := survey(ctx, targets, spec.Name)
		if err != nil {
			return failed(err)
		}
		stores, err := placement.Stores(found.stores, wanted)
		if err != nil {
			return failed(err)
		}
		if made, err = found.only(spec.Name); errors.Is(err, volume.ErrNotFound) {
			made, err = found.createInFirst(ctx, placement.Order(stores, spec.Name), spec)
		} else if err == nil {
			err = made.target.Matches(ctx, made.Volume, spec, origin)
		}
		if err != nil {
			return failed(err)
		}
	} else {
		// A copy lies beside its source.
		target, err := c.openTarget(source, req.GetSecrets(), provisionerSecret)
		if err != nil {
			return failed(err)
		}
		err = placement.CheckCopy(wanted, target.Name, func() (string, error) {
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

	// The answer, unless the volume is being deleted.
	if err := claim.Take(made.UUID); err != nil {
		return nil, err
	}
	config, err := c.targets.config(made.target.Name)
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:      request.VolumeID{Target: made.target.Name, UUID: made.UUID}.String(),
		CapacityBytes: made.SizeBytes,
		VolumeContext: volumeContext(config, made.Volume, wanted.FSType, origin),
		ContentSource: req.GetVolumeContentSource(),
	}}, nil
}

// A located volume knows its target.
type located struct {
	target *volume.Service
	volume.Volume
}

// claimSource claims the source of a copy: a snapshot beside others, for many may be restored at a time, a volume alone.
func claimSource(claim *request.Claim, origin volume.Origin) error {
	switch {
	case origin.UUID == "":
		return nil
	case origin.Snapshot:
		return claim.Share(origin.UUID)
	}
	return claim.Take(origin.UUID)
}

// allowedTargets opens all targets with the credentials of a call, and returns those that the class allows.
func (c *Controller) allowedTargets(secrets map[string]string, wanted class.Class) ([]*volume.Service, error) {
	targets, err := c.openTargets(secrets, provisionerSecret)
	if err != nil {
		return nil, err
	}
	return allowed(targets, wanted)
}

func allowed(targets []*volume.Service, wanted class.Class) ([]*volume.Service, error) {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
	}
	names, err := placement.Targets(names, wanted)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(targets, func(t *volume.Service) bool { return !slices.Contains(names, t.Name) }), nil
}

// surveyed is what the targets hold before a volume is made: their lvstores, and the volumes of its name.
type surveyed struct {
	stores  []placement.Store
	places  map[placement.Store]place
	volumes []located
}

// A place is an lvstore, and the target that it is on.
type place struct {
	target *volume.Service
	store  volume.Store
}

// survey asks all targets side by side for their lvstores, and for the volume if name is not empty. A target that does not
// answer is an error: the volume may be there.
func survey(ctx context.Context, targets []*volume.Service, name string) (surveyed, error) {
	stores, volumes := make([][]volume.Store, len(targets)), make([]*volume.Volume, len(targets))
	g, ctx := errgroup.WithContext(ctx)
	for i, t := range targets {
		g.Go(func() (err error) {
			if stores[i], err = t.Stores(ctx); err != nil || name == "" {
				return err
			}
			v, err := t.Find(ctx, stores[i], name)
			if errors.Is(err, volume.ErrNotFound) {
				return nil
			}
			volumes[i] = &v
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return surveyed{}, err
	}
	found := surveyed{places: map[placement.Store]place{}}
	for i, t := range targets {
		for _, st := range stores[i] {
			s := placement.Store{Target: t.Name, Name: st.Name, FreeBytes: st.FreeBytes, TotalBytes: st.TotalBytes, SmallestBytes: st.Size(1)}
			found.stores, found.places[s] = append(found.stores, s), place{t, st}
		}
		if volumes[i] != nil {
			found.volumes = append(found.volumes, located{t, *volumes[i]})
		}
	}
	return found, nil
}

// only returns the one volume that was found; an error of kind [volume.ErrNotFound] if there is none.
func (f surveyed) only(name string) (located, error) {
	switch len(f.volumes) {
	case 0:
		return located{}, volume.ErrNotFound
	case 1:
		return f.volumes[0], nil
	}
	return located{}, fmt.Errorf("%w: volume %q is on the targets %s and %s: rename or delete one of them", volume.ErrIncompatible, name, f.volumes[0].target.Name, f.volumes[1].target.Name)
}

// createInFirst makes the volume in the first of the stores that has room for it. Any other failure ends it, for the volume
// may have been made there.
func (f surveyed) createInFirst(ctx context.Context, stores []placement.Store, spec volume.Spec) (located, error) {
	var full []error
	for _, s := range stores {
		p := f.places[s]
		v, err := p.target.Create(ctx, p.store, spec)
		if err == nil {
			return located{p.target, v}, nil
		}
		if !errors.Is(err, volume.ErrNoSpace) && !errors.Is(err, volume.ErrOutOfRange) {
			return located{}, err
		}
		full = append(full, err)
	}
	return located{}, fmt.Errorf("no lvstore can take volume %q: %w", spec.Name, errors.Join(full...))
}

// contentSource reads what a volume is to be a copy of: its origin, and the id of that; nothing for an empty volume.
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
		err = fmt.Errorf("%w: %q: copies are made of volumes and snapshots of this driver, TARGET:UUID", request.ErrNoSuchID, text)
	}
	from.UUID = id.UUID
	return from, id, err
}

// sizes reads a capacity range: the smallest size, usual if none is requested, and the largest, 0 for no limit.
func sizes(r *csi.CapacityRange, usual int64) (least, most int64, err error) {
	least, most = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case least < 0 || most < 0:
		return 0, 0, fmt.Errorf("%w: capacity_range holds negative numbers", request.ErrInvalid)
	case most > 0 && least > most:
		return 0, 0, fmt.Errorf("%w: required_bytes %d are more than limit_bytes %d", volume.ErrOutOfRange, least, most)
	case least > maxSize:
		return 0, 0, fmt.Errorf("%w: required_bytes %d are more than any volume can have", volume.ErrOutOfRange, least)
	case least == 0 && most > 0:
		least = min(usual, max(1, most/volume.MiB*volume.MiB))
	case least == 0:
		least = usual
	}
	return least, most, nil
}

// maxSize leaves room for rounding up.
const maxSize = 1 << 60
