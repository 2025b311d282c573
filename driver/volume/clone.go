package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Origin is the source of a copy: a volume or a snapshot. If UUID is empty, the volume is not a
// copy.
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

// Clone creates a volume that starts with the contents of its origin, in the origin's lvstore. The
// new volume is thin, and at least as large as the origin. If an earlier call created the volume,
// Clone returns that volume.
//
// Creating and growing a clone are two steps, and a crash may occur between them. Clone therefore
// also grows an existing clone that is still as small as its parent.
func (s *Service) Clone(ctx context.Context, from Origin, spec Spec) (Volume, error) {
	var source Volume
	var stores []Store
	var unknown, unlisted error
	var reading sync.WaitGroup
	reading.Go(func() { source, unknown = s.Get(ctx, from.UUID) })
	reading.Go(func() { stores, unlisted = s.Stores(ctx) })
	mayBeRenamed, unread := s.mayBeRenamed(ctx, false) // reads the release, which the client then caches
	reading.Wait()
	if unknown == nil {
		unknown = s.notReplica(source)
	}
	if unknown != nil {
		return Volume{}, unknown
	}
	if source.Snapshot != from.Snapshot {
		return Volume{}, fmt.Errorf("target %s: %w: %s is not the requested %s", s.Name, ErrWrongKind, source, from)
	}
	if spec.MaxBytes > 0 && source.SizeBytes > spec.MaxBytes {
		return Volume{}, fmt.Errorf("target %s: %w: the source %s has %d bytes, more than the limit of %d", s.Name, ErrOutOfRange, source, source.SizeBytes, spec.MaxBytes)
	}
	for _, err := range []error{unlisted, unread} {
		if err != nil {
			return Volume{}, err
		}
	}
	if spec.MinBytes > source.SizeBytes {
		if err := s.checkGrowsBeyondParent(ctx, fmt.Sprintf("copy %s, which has %d bytes, to a volume of %d", source, source.SizeBytes, spec.MinBytes)); err != nil {
			return Volume{}, err
		}
	}
	var in *Store
	if i := slices.IndexFunc(stores, func(st Store) bool { return st.Name == source.Store }); i >= 0 {
		in = &stores[i]
	}
	known := s.askForClone(ctx, source, from, spec, &reading)
	known.mayBeRenamed = mayBeRenamed
	v, err := s.Find(ctx, stores, spec)
	reading.Wait()
	var parent *Volume
	unfinished := err == nil && isUnfinishedClone(v, source)
	if unfinished {
		exported, err := s.exports.Exists(ctx, v.UUID)
		if err != nil {
			return Volume{}, fmt.Errorf("target %s: find out whether %s is in use: %w", s.Name, v, err)
		}
		unfinished = !exported
	}
	if unfinished || errors.Is(err, ErrNotFound) {
		if in == nil {
			_, err := s.storeOf(stores, source.Store)
			return Volume{}, err
		}
		v, parent, err = s.clone(ctx, *in, source, from, spec, *known)
	}
	if err != nil {
		return Volume{}, err
	}
	if err := s.matchesOrigin(ctx, v, from, parent); err != nil {
		return Volume{}, err
	}
	if v, err = s.growUnfinished(ctx, v, spec, parent, in); err != nil {
		return Volume{}, err
	}
	return v, s.matches(ctx, v, spec, from, parent)
}

// beforeClone contains the results of queries that run concurrently with the look-up of the clone,
// before the clone is created. Clone ignores unneeded results and errors.
type beforeClone struct {
	base   Volume // the base of the clone, if an earlier call created it
	noBase error
	held   error // the reason why no snapshot of the source can be taken now

	mayBeRenamed bool // whether another call may rename the clone
}

// askForClone starts the queries that fill a beforeClone. The caller waits for the results with
// asking.
func (s *Service) askForClone(ctx context.Context, source Volume, from Origin, spec Spec, asking *sync.WaitGroup) *beforeClone {
	b := new(beforeClone)
	if !from.Snapshot {
		asking.Go(func() { b.base, b.noBase = s.lookUp(ctx, source.Store+"/"+baseName(LvolName(spec.Name), source.UUID)) })
		asking.Go(func() { b.held = s.exports.CheckHoldsIO(ctx, source.UUID) })
	}
	return b
}

// growUnfinished grows a clone that is still as small as its parent.
func (s *Service) growUnfinished(ctx context.Context, v Volume, spec Spec, known *Volume, in *Store) (Volume, error) {
	if v.SizeBytes >= spec.MinBytes || v.Base == "" {
		return v, nil
	}
	parent, err := s.parent(ctx, v, v.Base, known)
	if err != nil {
		return v, err
	}
	if v.SizeBytes != parent.SizeBytes {
		return v, nil
	}
	return s.grow(ctx, v, spec.MinBytes, spec.MaxBytes, in)
}

// parent returns v's parent, which has the given name. If known is that parent, parent returns
// known.
func (s *Service) parent(ctx context.Context, v Volume, name string, known *Volume) (Volume, error) {
	if known != nil && known.Store == v.Store && known.Name == name {
		return *known, nil
	}
	return s.lookUp(ctx, v.Store+"/"+name)
}

// clone creates the clone. The second result is the clone's parent, which is read again
// concurrently with the clone, or nil if that read fails.
func (s *Service) clone(ctx context.Context, st Store, source Volume, from Origin, spec Spec, known beforeClone) (Volume, *Volume, error) {
	name := LvolName(spec.Name)
	counted, err := s.promise(ctx, st, name, max(source.SizeBytes, st.Size(spec.MinBytes)))
	if err != nil {
		return Volume{}, nil, err
	}
	parent := source
	if !from.Snapshot {
		if parent, err = s.base(ctx, source, name, known); err != nil {
			return Volume{}, nil, err
		}
	}
	id, failed := s.createClone(ctx, st, parent, name, spec.Class.Clear)
	if failed != nil && !readback.Clarifies(failed) {
		return Volume{}, nil, fmt.Errorf("target %s: clone %s: %w", s.Name, parent, failed)
	}
	var now *Volume
	var reading sync.WaitGroup
	reading.Go(func() {
		if p, err := s.lookUp(ctx, source.Store+"/"+parent.Name); err == nil {
			now = &p
		}
	})
	reading.Go(func() { _, _ = s.rpc.Release(ctx) })
	v, err := s.findCreated(ctx, source.Store, name, id, known.mayBeRenamed)
	reading.Wait()
	switch {
	case err == nil && (failed == nil || v.Base != "" || v.used()):
		counted.keep(v)
		return v, now, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return Volume{}, nil, err
	case failed == nil:
		return Volume{}, nil, fmt.Errorf("target %s: %w: the clone of %s was created, but no longer exists: try again", s.Name, ErrBusy, parent)
	case errors.Is(failed, spdkrpc.NoSuchDevice):
		return Volume{}, nil, fmt.Errorf("target %s: %w: %s was deleted during the call: try again", s.Name, ErrBusy, parent)
	case err != nil && errors.Is(failed, spdkrpc.Exists):
		return Volume{}, nil, fmt.Errorf("target %s: %w: a volume %s/%s is being deleted, or was deleted during the call: try again", s.Name, ErrBusy, source.Store, name)
	}
	if err == nil {
		counted.keep(v)
		return Volume{}, nil, fmt.Errorf("target %s: %w: %s exists, but is not a clone of %s yet: try again: %w", s.Name, ErrBusy, v, parent, failed)
	}
	if readback.Refused(failed) {
		counted.takeBack()
	}
	return Volume{}, nil, fmt.Errorf("target %s: clone %s: %w", s.Name, parent, failed)
}

// base returns the snapshot of a volume that the clone called name is created from, because SPDK
// can clone only snapshots. The snapshot may have been created for an earlier clone (see reuse.go).
// The snapshot exists until the volume or the clone is deleted. If the clone is never created, the
// snapshot is deleted together with the volume.
func (s *Service) base(ctx context.Context, source Volume, name string, known beforeClone) (Volume, error) {
	alias := source.Store + "/" + baseName(name, source.UUID)
	if !errors.Is(known.noBase, ErrNotFound) {
		return known.base, known.noBase
	}
	base, unchanged, err := s.unchangedBase(ctx, source)
	if unchanged || err != nil {
		return base, err
	}
	if source, err = s.collapse(ctx, source); err != nil {
		return Volume{}, err
	}
	failed := known.held
	if depth := s.checkDepth(ctx, source); depth != nil {
		failed = depth
	}
	var id string
	if failed == nil {
		id, failed = s.snapshotNow(ctx, source, baseName(name, source.UUID))
	}
	if failed == nil { // the base is read again while the clone is read
		return Volume{UUID: id, Store: source.Store, Name: baseName(name, source.UUID), SizeBytes: source.SizeBytes, Thin: true, Snapshot: true, Base: source.Base, Clones: []string{source.Name}}, nil
	}
	if !readback.Clarifies(failed) {
		return Volume{}, fmt.Errorf("target %s: take a snapshot of %s to clone it: %w", s.Name, source, failed)
	}
	base, err = s.lookUp(ctx, alias)
	if errors.Is(err, ErrNotFound) {
		return Volume{}, fmt.Errorf("target %s: take a snapshot of %s to clone it: %w", s.Name, source, failed)
	}
	return base, err
}

// matchesOrigin fails with ErrIncompatible if a volume is not a copy of want. It walks up the chain
// of parents. The nearest parents may be snapshots of the volume itself; the first parent that is
// not is the origin.
func (s *Service) matchesOrigin(ctx context.Context, v Volume, want Origin, known *Volume) error {
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
		parent, err := s.parent(ctx, v, name, known)
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
		// The target does not record whether a snapshot by SPDK's spdk-csi was taken of this volume
		// or is the source of this volume.
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

// Pristine reports whether a volume has never been written to. known is false if this cannot be
// determined: for thick volumes, which allocate all clusters at creation, and on releases that do
// not count clusters. For such volumes, only the name can show that the volume has been used.
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
