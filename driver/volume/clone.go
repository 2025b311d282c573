package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Origin is the volume or snapshot that a volume is a copy of. If UUID is empty, the volume is no copy.
type Origin struct {
	UUID     string
	Snapshot bool // true for a snapshot, false for a volume
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

// Clone creates a volume that begins with the contents of its origin, in the origin's lvstore. It is thin, and at least as
// large as the origin. If an earlier call created it, Clone returns it.
//
// Creating and growing are two steps, and a crash may happen between them. So a clone that is as small as its parent is
// grown, not refused.
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
	v, err := s.Find(ctx, stores, spec)
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
	id, failed := s.createClone(ctx, parent, name, spec.Class.Clear)
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
		return Volume{}, fmt.Errorf("target %s: %w: the clone of %s was created, but no longer exists: try again", s.Name, ErrBusy, parent)
	case errors.Is(failed, spdkrpc.NoSuchDevice):
		return Volume{}, fmt.Errorf("target %s: %w: %s was deleted during the call: try again", s.Name, ErrBusy, parent)
	}
	if readback.Refused(failed) {
		counted.takeBack()
	}
	return Volume{}, fmt.Errorf("target %s: clone %s: %w", s.Name, parent, failed)
}

// base returns the snapshot of a volume from which the clone called name is created, because SPDK clones only snapshots. It
// may be that of an earlier clone (see reuse.go). It exists until one of the two is deleted. If the clone is never created, it
// is deleted together with the volume.
func (s *Service) base(ctx context.Context, source Volume, name string) (Volume, error) {
	alias := source.Store + "/" + baseName(name, source.UUID)
	base, err := s.lookUp(ctx, alias)
	if !errors.Is(err, ErrNotFound) {
		return base, err
	}
	base, unchanged, err := s.unchangedBase(ctx, source)
	if unchanged || err != nil {
		return base, err
	}
	if source, err = s.collapse(ctx, source); err != nil {
		return Volume{}, err
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

// matchesOrigin fails with ErrIncompatible if a volume is not a copy of want. It follows the volume's parents: the first
// ones may be snapshots of the volume itself, and the next one is its origin.
func (s *Service) matchesOrigin(ctx context.Context, v Volume, want Origin) error {
	differs := func(is any) error {
		return fmt.Errorf("target %s: %w: %s was created from %v, but a volume created from %v is requested", s.Name, ErrIncompatible, v, is, want)
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
			return fmt.Errorf("target %s: %w: %s, a parent of %s, was deleted during the call: try again", s.Name, ErrBusy, name, v)
		case err != nil:
			return err
		case ours && n.source == v.UUID:
			name = parent.Base
			continue
		}
		is := Origin{UUID: parent.UUID, Snapshot: true}
		// It is unknown whether spdk-csi took this snapshot of the volume, or cloned it to the volume.
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

// Pristine tells whether a volume was never written to, if the target knows (known). It does not know for thick volumes,
// which have all clusters from the beginning, and on releases that do not count clusters, unless the volume's name tells
// that it was used.
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
			return false, true, nil // a copy of another volume
		}
		if at, err = s.lookUp(ctx, v.Store+"/"+at.Base); err != nil {
			return false, false, err
		}
	}
}
