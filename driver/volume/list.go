package volume

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A Page selects part of a list: at most Max entries (0 for all) whose UUIDs are greater than After. Lists are sorted by
// UUID, so an entry that is added or removed between two pages does not repeat or hide others.
type Page struct {
	After string
	Max   int
}

// List lists the volumes in the driver's lvstores, also those that the driver did not create. If there are more, next is
// the After of the next page.
func (s *Service) List(ctx context.Context, p Page) (volumes []Volume, next string, err error) {
	return s.page(ctx, p, func(name string, snapshot bool) bool { return !snapshot })
}

// ListSnapshots lists the snapshots that were requested, not the internal ones. If source is not empty, it lists only those
// of this volume.
func (s *Service) ListSnapshots(ctx context.Context, source string, p Page) (snapshots []Snapshot, next string, err error) {
	volumes, next, err := s.page(ctx, p, func(name string, snapshot bool) bool {
		n, ours := parseName(name)
		return snapshot && ours && !n.base && (source == "" || n.source == source)
	})
	for _, v := range volumes {
		n, _ := parseName(v.Name)
		snapshots = append(snapshots, Snapshot{Volume: v, SourceUUID: n.source, CreatedAt: n.createdAt})
	}
	return snapshots, next, err
}

func (s *Service) page(ctx context.Context, p Page, wanted func(name string, snapshot bool) bool) (volumes []Volume, next string, err error) {
	lvols, err := s.lvols(ctx)
	if err != nil {
		return nil, "", err
	}
	var ids []string
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
	// The list has no sizes. They are read one by one, concurrently, because one query for all bdevs stalls the target's
	// reactor for tens of milliseconds.
	const inFlight = 32
	volumes = make([]Volume, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, id := range ids {
		g.Go(func() error {
			v, err := s.Get(ctx, id)
			if errors.Is(err, ErrNotFound) { // deleted since it was listed
				return nil
			}
			volumes[i] = v
			if errors.Is(err, ErrDegraded) { // it exists, but SPDK does not tell its size
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
