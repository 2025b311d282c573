package volume

import (
	"context"
	"errors"
)

// Each base lengthens the chain below its source, and remains while both its clone and its source
// exist. The driver therefore reuses a base for further clones while the source is unchanged, and
// deletes bases that have lost their clones before it creates another base.

// unchangedBase returns the base of a source if both definitely have the same contents. The state
// of the source proves this: the source is thin and owns no clusters, so all of its data is read
// from its parent, the base. SPDK counts a cluster before it completes the write that allocates the
// cluster. ok is false if there is no such base, if the target does not count clusters, or if a
// host may be writing to the source.
func (s *Service) unchangedBase(ctx context.Context, source Volume) (base Volume, ok bool, err error) {
	n, ours := parseName(source.Base)
	if !ours || !n.base || n.source != source.UUID || !source.Thin || source.Allocated == nil || *source.Allocated > 0 || s.UncountedWrites {
		return Volume{}, false, nil
	}
	if exported, err := s.exports.Exists(ctx, source.UUID); exported || err != nil {
		return Volume{}, false, err
	}
	base, err = s.lookUp(ctx, source.Store+"/"+source.Base)
	if errors.Is(err, ErrNotFound) {
		return Volume{}, false, nil
	}
	return base, err == nil && base.SizeBytes == source.SizeBytes, err
}

// collapse deletes the bases above a volume that are no longer needed, for example because their
// clones were deleted while a host was using the volume. It returns the volume in its new state.
func (s *Service) collapse(ctx context.Context, v Volume) (Volume, error) {
	above, err := s.bases(ctx, v)
	if err != nil {
		return v, err
	}
	changed := false
	for _, base := range above {
		if len(base.Clones) > 1 {
			continue
		}
		if err := s.removeUnneededBase(ctx, base); err != nil {
			return v, err
		}
		changed = true
	}
	if !changed {
		return v, nil
	}
	return s.GetVolume(ctx, v.UUID)
}
