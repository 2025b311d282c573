package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Origin is what a volume was made from: nothing if UUID is empty.
type Origin struct {
	UUID     string
	Snapshot bool // a snapshot; a volume otherwise
}

func (o Origin) String() string {
	switch {
	case o.UUID == "":
		return "nothing"
	case o.Snapshot:
		return "snapshot " + o.UUID
	}
	return "volume " + o.UUID
}

// Clone makes a volume that starts with the contents of its origin, in the origin's lvstore. It is thin, and as large
// as the origin or larger.
//
// Making and growing are two steps, and a crash may have happened between them: a clone as small as its parent is
// grown, instead of being refused.
func (s *Service) Clone(ctx context.Context, from Origin, spec Spec) (Volume, error) {
	source, err := s.Get(ctx, from.UUID)
	if err != nil {
		return Volume{}, err
	}
	if source.Snapshot != from.Snapshot {
		return Volume{}, fmt.Errorf("target %s: %w: %s is not the requested %s", s.Name, ErrWrongKind, source, from)
	}
	if spec.MaxBytes > 0 && source.SizeBytes > spec.MaxBytes {
		return Volume{}, fmt.Errorf("target %s: %w: the source %s has %d bytes, more than the limit %d", s.Name, ErrOutOfRange, source, source.SizeBytes, spec.MaxBytes)
	}
	stores, err := s.Stores(ctx)
	if err != nil {
		return Volume{}, err
	}
	v, err := s.Find(ctx, stores, spec.Name)
	if errors.Is(err, ErrNotFound) || err == nil && isUnfinishedClone(v, source) {
		v, err = s.clone(ctx, stores, source, from, spec)
	}
	if err != nil {
		return Volume{}, err
	}
	if err := s.matchesOrigin(ctx, v, from); err != nil {
		return Volume{}, err
	}
	if v, err = s.growUnfinished(ctx, v, spec); err != nil {
		return Volume{}, err
	}
	return v, s.Matches(ctx, v, spec, from)
}

// growUnfinished grows a clone that is still as small as its parent.
func (s *Service) growUnfinished(ctx context.Context, v Volume, spec Spec) (Volume, error) {
	if v.SizeBytes >= spec.MinBytes || v.Base == "" {
		return v, nil
	}
	parent, err := s.lookUp(ctx, v.Store+"/"+v.Base)
	if err != nil {
		return v, err
	}
	if v.SizeBytes != parent.SizeBytes {
		return v, nil
	}
	return s.grow(ctx, v, spec.MinBytes, spec.MaxBytes)
}

func (s *Service) clone(ctx context.Context, stores []Store, source Volume, from Origin, spec Spec) (Volume, error) {
	name := LvolName(spec.Name)
	st, err := s.storeOf(stores, source.Store)
	if err != nil {
		return Volume{}, err
	}
	counted, err := s.promise(ctx, st, name, max(source.SizeBytes, st.Size(spec.MinBytes)))
	if err != nil {
		return Volume{}, err
	}
	parent := source
	if !from.Snapshot {
		if parent, err = s.base(ctx, source, name); err != nil {
			return Volume{}, err
		}
	}
	id, failed := s.makeClone(ctx, parent, name, spec.Class.Clear)
	if failed != nil && !readback.Clarifies(failed) {
		return Volume{}, fmt.Errorf("target %s: clone %s: %w", s.Name, parent, failed)
	}
	v, err := s.findCreated(ctx, source.Store, name, id)
	switch {
	case err == nil && (failed == nil || v.Base != "" || v.used()):
		counted.keep(v)
		return v, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return Volume{}, err
	case failed == nil:
		return Volume{}, fmt.Errorf("target %s: %w: the clone of %s was made, but no longer exists: try again", s.Name, ErrBusy, parent)
	case errors.Is(failed, spdkrpc.NoSuchDevice):
		return Volume{}, fmt.Errorf("target %s: %w: %s was deleted meanwhile: try again", s.Name, ErrBusy, parent)
	}
	if readback.Refused(failed) {
		counted.takeBack()
	}
	return Volume{}, fmt.Errorf("target %s: clone %s: %w", s.Name, parent, failed)
}

// base returns the snapshot of a volume from which the clone called name is made: SPDK clones snapshots only. It stays
// as long as both need it; if the clone is never made, the deletion of the volume deletes it.
func (s *Service) base(ctx context.Context, source Volume, name string) (Volume, error) {
	alias := source.Store + "/" + baseName(name, source.UUID)
	base, err := s.lookUp(ctx, alias)
	if !errors.Is(err, ErrNotFound) {
		return base, err
	}
	_, failed := s.snapshotFrozen(ctx, source, baseName(name, source.UUID))
	if failed != nil && !readback.Clarifies(failed) {
		return Volume{}, fmt.Errorf("target %s: take a snapshot of %s to clone it: %w", s.Name, source, failed)
	}
	base, err = s.lookUp(ctx, alias)
	if failed != nil && errors.Is(err, ErrNotFound) {
		return Volume{}, fmt.Errorf("target %s: take a snapshot of %s to clone it: %w", s.Name, source, failed)
	}
	return base, err
}

// matchesOrigin walks up a volume's parents. Snapshots that were taken of the volume itself stand between it and its
// origin; the first other one is where it came from.
func (s *Service) matchesOrigin(ctx context.Context, v Volume, want Origin) error {
	differs := func(is any) error {
		return fmt.Errorf("target %s: %w: %s was made from %v, but a volume made from %v is requested", s.Name, ErrIncompatible, v, is, want)
	}
	for name := v.Base; name != ""; {
		n, ours := parseName(name)
		if ours && n.base && n.source != v.UUID {
			if is := (Origin{UUID: n.source}); is != want {
				return differs(is)
			}
			return nil
		}
		parent, err := s.lookUp(ctx, v.Store+"/"+name)
		switch {
		case errors.Is(err, ErrNotFound):
			return fmt.Errorf("target %s: %w: %s, a parent of %s, was deleted meanwhile: try again", s.Name, ErrBusy, name, v)
		case err != nil:
			return err
		case ours && n.source == v.UUID:
			name = parent.Base
			continue
		}
		is := Origin{UUID: parent.UUID, Snapshot: true}
		// Whether a snapshot of spdk-csi's was taken of this volume, or cloned to it, is unknown.
		if is != want && (ours || want.UUID != "") {
			return differs(is)
		}
		return nil
	}
	if want.UUID != "" {
		return differs(Origin{})
	}
	return nil
}

// Pristine reports whether a volume was never written to, and whether the target knows that (known). It does not where the volume
// has all of its clusters from the beginning, and where the release does not count them, until the volume is known to have
// been used.
func (s *Service) Pristine(ctx context.Context, v Volume) (pristine, known bool, err error) {
	if v.used() {
		return false, true, nil
	}
	for at := v; ; {
		switch {
		case !at.Thin || at.Allocated == nil:
			return false, false, nil
		case *at.Allocated > 0:
			return false, true, nil
		case at.Base == "":
			return true, true, nil
		}
		if n, ours := parseName(at.Base); !ours || n.source != v.UUID {
			return false, true, nil // a copy of something else
		}
		if at, err = s.lookUp(ctx, v.Store+"/"+at.Base); err != nil {
			return false, false, err
		}
	}
}
