package volume

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A Page selects part of a list: at most Max entries (0 for all) whose UUIDs are greater than
// After. Lists are sorted by UUID, so an entry that is added or removed between two pages neither
// repeats nor hides other entries.
type Page struct {
	After string
	Max   int
}

// List lists the volumes in the driver's lvstores, including volumes that the driver did not
// create. If there are more volumes, next is the value of After for the next page.
func (s *Service) List(ctx context.Context, p Page) (volumes []Volume, next string, err error) {
	return s.page(ctx, p, isVolume)
}

// ListIDs is like List, but returns only UUIDs. It needs only two calls to the target, regardless
// of the number of volumes.
func (s *Service) ListIDs(ctx context.Context, p Page) (ids []string, next string, err error) {
	return s.ids(ctx, p, isVolume)
}

// isVolume selects volumes. A replica is only a part of a volume.
func isVolume(name string, snapshot bool) bool { return !snapshot && !isReplica(name) }

// ListSnapshots lists the requested snapshots, including snapshots taken by SPDK's spdk-csi, but
// not the bases. If source is not empty, it lists only the snapshots of that volume.
func (s *Service) ListSnapshots(ctx context.Context, source string, p Page) (snapshots []Snapshot, next string, err error) {
	volumes, next, err := s.page(ctx, p, func(name string, snapshot bool) bool {
		n, ours := parseName(name)
		return snapshot && !(ours && n.base) && (source == "" || !ours || n.source == source)
	})
	if err != nil {
		return nil, "", err
	}
	for _, v := range volumes {
		snap, err := s.asSnapshot(v)
		if err != nil {
			return nil, "", err
		}
		if snap, err = s.WithSource(ctx, snap); err != nil {
			return nil, "", err
		}
		if source == "" || snap.SourceUUID == source {
			snapshots = append(snapshots, snap)
		}
	}
	return snapshots, next, nil
}

// WithSource adds the source volume to a snapshot that SPDK's spdk-csi took, if exactly one volume
// was derived from that snapshot. The source is then certain, because SPDK's spdk-csi never created
// clones.
func (s *Service) WithSource(ctx context.Context, snap Snapshot) (Snapshot, error) {
	for at := snap.Volume; snap.SourceUUID == "" && len(at.Clones) == 1; {
		below, err := s.lookUp(ctx, snap.Store+"/"+at.Clones[0])
		if errors.Is(err, ErrNotFound) { // deleted in the meantime
			return snap, nil
		}
		if err != nil {
			return snap, err
		}
		if !below.Snapshot {
			snap.SourceUUID = below.UUID
		}
		at = below
	}
	return snap, nil
}

func (s *Service) ids(ctx context.Context, p Page, wanted func(name string, snapshot bool) bool) (ids []string, next string, err error) {
	lvols, err := s.lvols(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, l := range lvols {
		if strings.Compare(l.UUID, p.After) > 0 && wanted(l.Name, isSnapshot(l.Name, l.IsSnapshot)) {
			ids = append(ids, l.UUID)
		}
	}
	slices.Sort(ids)
	if p.Max > 0 && len(ids) > p.Max {
		ids = ids[:p.Max]
		next = ids[p.Max-1]
	}
	return ids, next, nil
}

// inFlight is the number of volumes that are read at the same time.
const inFlight = 32

func (s *Service) page(ctx context.Context, p Page, wanted func(name string, snapshot bool) bool) (volumes []Volume, next string, err error) {
	ids, next, err := s.ids(ctx, p, wanted)
	if err != nil {
		return nil, "", err
	}
	// bdev_lvol_get_lvols returns no sizes. The method page reads each size with its own query,
	// because a single query for all bdevs would block the target's reactor for tens of
	// milliseconds.
	ctx = AskOnce(ctx)
	volumes = make([]Volume, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, id := range ids {
		g.Go(func() error {
			v, err := s.Get(ctx, id)
			if errors.Is(err, ErrNotFound) { // the volume was deleted after it was listed
				return nil
			}
			volumes[i] = v
			if errors.Is(err, ErrDegraded) { // the volume exists, but SPDK does not report its size
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, "", err
	}
	volumes = slices.DeleteFunc(volumes, func(v Volume) bool { return v.UUID == "" })
	return volumes, next, nil
}
