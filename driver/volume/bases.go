package volume

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Cloning a volume creates an internal snapshot, the base (see name.go). The base is needed while
// both the volume (or a snapshot of it) and the clone (or a snapshot of it) exist. A base with a
// single clone is no longer needed. When the base is deleted, SPDK moves its contents to the clone.

// removeWithBases deletes an lvol and the bases above it that it leaves unneeded.
func (s *Service) removeWithBases(ctx context.Context, v Volume) error {
	above, err := s.bases(ctx, v)
	if err != nil {
		return err
	}
	// First delete the bases that only v needs, so that after a crash, the remaining bases can
	// still be found from v.
	var left []Volume
	for _, base := range above {
		deleted := false
		if len(base.Clones) <= 1 {
			if deleted, err = s.removeBase(ctx, base); err != nil {
				return err
			}
		}
		if !deleted {
			left = append(left, base)
		}
	}
	if err := s.remove(ctx, v); err != nil {
		return err
	}
	// A base that has lost a clone may have only one clone left, which makes it unneeded. Deleting
	// a base can in turn make the base above it unneeded. Until its only clone is deleted, the
	// proxy refuses to delete a base that is smaller than this clone.
	for _, base := range left {
		if err := s.removeUnneededBase(ctx, base); err != nil {
			return err
		}
	}
	s.sweepOnce(ctx)
	return nil
}

// bases returns the bases directly above v, nearest first.
func (s *Service) bases(ctx context.Context, v Volume) (above []Volume, err error) {
	for name := v.Base; isBase(name); {
		base, err := s.lookUp(ctx, v.Store+"/"+name)
		if errors.Is(err, ErrNotFound) {
			return above, nil // another call has just deleted the base
		}
		if err != nil {
			return nil, err
		}
		above = append(above, base)
		name = base.Base
	}
	return above, nil
}

func isBase(name string) bool {
	n, ours := parseName(name)
	return ours && n.base
}

// removeUnneededBase deletes a base if it has at most one clone and no host is using that clone.
func (s *Service) removeUnneededBase(ctx context.Context, base Volume) error {
	now, err := s.lookUp(ctx, base.UUID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(now.Clones) > 1:
		return nil
	}
	if len(now.Clones) == 1 {
		if used, err := s.usedByHost(ctx, now.Store+"/"+now.Clones[0]); used || err != nil {
			return err
		}
	}
	_, err = s.removeBase(ctx, now)
	return err
}

// usedByHost reports whether a host may be writing to a volume. The snapshot below such a volume
// must not be deleted, because SPDK copies the cluster map without waiting for the writes in
// progress. The base is deleted later, together with the volume.
func (s *Service) usedByHost(ctx context.Context, alias string) (bool, error) {
	v, err := s.lookUp(ctx, alias)
	if errors.Is(err, ErrNotFound) {
		return true, nil // the clone is being renamed, or is being deleted together with its bases
	}
	if err != nil || v.Snapshot {
		return false, err
	}
	return s.exports.Exists(ctx, v.UUID)
}

// removeBase deletes a base. The base is not deleted if it now has another clone, or if its clone
// is in use or is larger than the base.
func (s *Service) removeBase(ctx context.Context, base Volume) (deleted bool, err error) {
	err = s.remove(ctx, base)
	if errors.Is(err, ErrInUse) || errors.Is(err, spdkrpc.InUse) {
		return false, nil
	}
	return err == nil, err
}

// sweepOnce calls sweep unless this service has already swept successfully.
func (s *Service) sweepOnce(ctx context.Context) {
	if !s.seen.swept.Swap(true) {
		s.sweep(ctx)
	}
}

// sweep deletes orphans: unneeded bases whose source has been deleted. Crashes, concurrent
// deletions and earlier versions of the driver leave such bases behind. If the source of a base
// exists, another call may be about to clone the base; such a base is deleted together with its
// source.
//
// sweep returns no error, because the caller's deletion has already succeeded. After a failure, the
// next deletion sweeps again.
func (s *Service) sweep(ctx context.Context) {
	lvols, err := s.lvols(ctx)
	exists := make(map[string]bool, len(lvols))
	for _, l := range lvols {
		exists[l.UUID] = true
	}
	for _, l := range lvols {
		if n, ours := parseName(l.Name); ours && n.base && !exists[n.source] {
			err = errors.Join(err, s.removeUnneededBase(ctx, volumeOf(l)))
		}
	}
	if err != nil {
		s.seen.swept.Store(false)
	}
}

func volumeOf(l spdkrpc.LvolInfo) Volume {
	return Volume{UUID: l.UUID, Store: l.Lvs.Name, Name: l.Name, Snapshot: isSnapshot(l.Name, l.IsSnapshot)}
}
