package volume

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Cloning a volume takes an internal snapshot, a base (see name.go). It is needed while both sides of the
// clone exist: the volume and its clone, or snapshots of them. A base with one clone is no longer needed, and SPDK has
// the clone take over its contents when it is deleted.

// removeWithBases deletes an lvol, and the bases above it that are not needed without it.
func (s *Service) removeWithBases(ctx context.Context, v Volume) error {
	above, err := s.bases(ctx, v)
	if err != nil {
		return err
	}
	// Bases that only lead to v go first: after a crash in between, v still leads to those that are left.
	var shared []Volume
	for _, base := range above {
		if len(base.Clones) > 1 {
			shared = append(shared, base)
		} else if err := s.removeBase(ctx, base); err != nil {
			return err
		}
	}
	if err := s.remove(ctx, v); err != nil {
		return err
	}
	// A base that lost a clone may have one left. When it goes, the one above it may have lost one as well.
	for _, base := range shared {
		if err := s.removeUnneededBase(ctx, base); err != nil {
			return err
		}
	}
	s.sweepOnce(ctx)
	return nil
}

// bases returns the bases directly above v, the nearest first.
func (s *Service) bases(ctx context.Context, v Volume) (above []Volume, err error) {
	for name := v.Base; isBase(name); {
		base, err := s.lookUp(ctx, v.Store+"/"+name)
		if errors.Is(err, ErrNotFound) {
			return above, nil // another call deleted it meanwhile
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

// removeUnneededBase deletes a base that is not needed any more.
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
	return s.removeBase(ctx, now)
}

// usedByHost reports whether a host may be writing to a volume. SPDK must not change what lies below it then: it copies
// its map of clusters without waiting for writes that are under way. The base goes when the volume does.
func (s *Service) usedByHost(ctx context.Context, alias string) (bool, error) {
	v, err := s.lookUp(ctx, alias)
	if errors.Is(err, ErrNotFound) {
		return true, nil // it is being deleted or renamed; the deletion collects its bases
	}
	if err != nil || v.Snapshot {
		return false, err
	}
	return s.exports.Exists(ctx, v.UUID)
}

// removeBase deletes a base, unless it was cloned once more meanwhile, or its clone is in use.
func (s *Service) removeBase(ctx context.Context, base Volume) error {
	if err := s.remove(ctx, base); err != nil && !errors.Is(err, ErrInUse) && !errors.Is(err, spdkrpc.InUse) {
		return err
	}
	return nil
}

// sweepOnce sweeps unless the service has done so before: it deletes what earlier versions left.
func (s *Service) sweepOnce(ctx context.Context) {
	if !s.seen.swept.Swap(true) {
		s.sweep(ctx)
	}
}

// sweep deletes the bases that are not needed and that no volume or snapshot may ever lead to again: those whose source
// is gone. A crash, or two deletions at once, can leave such bases; so did earlier versions. Of a base whose source is
// there, a clone may be about to be made; the deletion of the source deletes that base.
//
// It returns no error: the deletion that called it succeeded. The next deletion tries again.
func (s *Service) sweep(ctx context.Context) {
	lvols, err := s.lvols(ctx)
	there := make(map[string]bool, len(lvols))
	for _, l := range lvols {
		there[l.UUID] = true
	}
	for _, l := range lvols {
		if n, ours := parseName(l.Name); ours && n.base && !there[n.source] {
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
