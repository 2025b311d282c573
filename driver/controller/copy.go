package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// createCopy creates a copy of a snapshot or volume, or finds the copy that an earlier call
// created. A copy is always in the same lvstore as its source.
func (c *Controller) createCopy(ctx context.Context, n creation) (located, error) {
	target, err := c.openTarget(n.source, n.secrets, provisionerSecret)
	if err != nil {
		return located{}, err
	}
	if n.shared {
		if err := target.CheckShareable(); err != nil {
			return located{}, err
		}
	}
	if err := c.targets.checkAuthenticates(target.Name, n.spec.Class.Authentication); err != nil {
		return located{}, err
	}
	if n.rawBlock {
		if err := target.CheckRawBlock(ctx); err != nil {
			return located{}, err
		}
	}
	at, err := c.targets.placed(target.Name)
	if err != nil {
		return located{}, err
	}
	if _, err := n.where.Filter([]placement.Target{at}); err != nil {
		return located{}, fmt.Errorf("%w: the source is on target %s, and a copy is created on the same target", err, target.Name)
	}
	err = placement.CheckCopy(n.spec.Class, at, func() (string, error) {
		v, err := target.Get(ctx, n.origin.UUID)
		return v.Store, err
	})
	if err != nil {
		return located{}, err
	}
	v, err := target.Clone(ctx, n.origin, n.spec)
	return located{target, v}, err
}

// contentSource returns a copy's source and the source's id. For an empty volume, source and id are
// empty.
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

// claimSource locks the source of a copy. A snapshot gets a shared lock, because several volumes
// can be restored from it concurrently; a volume gets an exclusive lock.
func claimSource(claim *request.Claim, origin volume.Origin) error {
	switch {
	case origin.UUID == "":
		return nil
	case origin.Snapshot:
		return claim.Share(origin.UUID)
	}
	return claim.Take(origin.UUID)
}
