package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// MiB is the unit of sizes in SPDK's calls.
const MiB = 1 << 20

// A Spec describes a volume to be created.
type Spec struct {
	Name string // the requested name, which may be any text
	// MinBytes is the smallest allowed size, and MaxBytes is the largest; 0 means no limit.
	MinBytes, MaxBytes int64
	Class              class.Class
	// Replica is set for a replica of a replicated volume. It determines the name of the lvol.
	Replica *ReplicaID
}

// lvolName returns the name of the lvol.
func (spec Spec) lvolName() string {
	if spec.Replica != nil {
		return spec.Replica.LvolName()
	}
	return LvolName(spec.Name)
}

// Size returns the size that a volume of at least minBytes would have in the store.
func (st Store) Size(minBytes int64) int64 { return roundUp(roundUp(minBytes, MiB), st.ClusterBytes) }

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// room returns an error that wraps [ErrOutOfRange] or [ErrNoSpace] if the volume does not fit in
// the store. A thin volume allocates its clusters later, so it may be larger than the free space,
// but not larger than the entire store.
func (s Space) room(st Store, spec Spec) error {
	size := st.Size(spec.MinBytes)
	free := st.FreeBytes - s.reserve(st)
	switch {
	case spec.MaxBytes > 0 && size > spec.MaxBytes:
		return fmt.Errorf("%w: lvstore %s allocates units of %d bytes: it would allocate %d bytes for the requested %d, which exceeds the limit of %d", ErrOutOfRange, st.Name, st.ClusterBytes, size, spec.MinBytes, spec.MaxBytes)
	case size > st.TotalBytes:
		return fmt.Errorf("%w: lvstore %s has %d bytes in total, but the volume needs %d", ErrNoSpace, st.Name, st.TotalBytes, size)
	case spec.Class.Thick && size > free || free <= 0:
		return fmt.Errorf("%w: lvstore %s has %d bytes free, %d of which are its reserve, but the volume needs %d", ErrNoSpace, st.Name, st.FreeBytes, s.reserve(st), size)
	}
	return nil
}

// Create creates an empty volume in a store. The caller must have checked that no such volume
// exists. If another call has created the volume since that check, and the volume matches spec,
// Create returns that volume.
func (s *Service) Create(ctx context.Context, st Store, spec Spec) (Volume, error) {
	if err := s.Space.room(st, spec); err != nil {
		return Volume{}, fmt.Errorf("target %s: %w", s.Name, err)
	}
	method := clearMethod(st, spec.Class.Clear)
	lvol := spec.lvolName()
	counted, err := s.promise(ctx, st, lvol, st.Size(spec.MinBytes))
	if err != nil {
		return Volume{}, err
	}
	id, failed := s.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{
		LvolName: lvol, UUID: &st.UUID, SizeInMiB: uint64(st.Size(spec.MinBytes) / MiB),
		ThinProvision: new(!spec.Class.Thick), ClearMethod: &method,
	})
	if failed != nil && !readback.Clarifies(failed) {
		return Volume{}, fmt.Errorf("target %s: create volume %q in lvstore %s: %w", s.Name, spec.Name, st.Name, failed)
	}
	if failed == nil {
		mayBeRenamed, err := s.mayBeRenamed(ctx, spec.Class.Thick)
		if err != nil {
			return Volume{}, err
		}
		if !mayBeRenamed { // SPDK itself refuses a second volume with this name
			v := Volume{UUID: id, Store: st.Name, Name: lvol, SizeBytes: st.Size(spec.MinBytes), Thin: true, Allocated: new(uint64(0))}
			counted.keep(v)
			return v, nil
		}
	}
	v, err := s.findCreated(ctx, st.Name, lvol, id, true)
	switch {
	case err == nil:
		counted.keep(v)
		return v, s.Matches(ctx, v, spec, Origin{})
	case !errors.Is(err, ErrNotFound):
		return Volume{}, err
	case failed == nil:
		return Volume{}, fmt.Errorf("target %s: %w: volume %q was created in lvstore %s, but no longer exists: try again", s.Name, ErrBusy, spec.Name, st.Name)
	}
	if !readback.Refused(failed) {
		// SPDK may still execute the call. The caller must not try another lvstore, because this
		// could create a second volume.
		return Volume{}, fmt.Errorf("target %s: create volume %q in lvstore %s: %w", s.Name, spec.Name, st.Name, failed)
	}
	counted.takeBack()
	if errors.Is(failed, spdkrpc.Exists) {
		return Volume{}, fmt.Errorf("target %s: %w: a volume %s/%s is being deleted, or was created during the call: try again", s.Name, ErrBusy, st.Name, lvol)
	}
	// If SPDK refuses a volume, only the error text distinguishes a full lvstore from other
	// failures, so the driver reads the lvstore's free space.
	now, err := s.store(ctx, st.Name)
	if err != nil {
		return Volume{}, err
	}
	if err := s.Space.room(now, spec); err != nil {
		return Volume{}, fmt.Errorf("target %s: %w", s.Name, err)
	}
	return Volume{}, fmt.Errorf("target %s: create volume %q in lvstore %s: %w", s.Name, spec.Name, st.Name, failed)
}

// Matches fails with [ErrIncompatible] unless an existing volume matches spec and is a copy of
// want.
func (s *Service) Matches(ctx context.Context, v Volume, spec Spec, want Origin) error {
	return s.matches(ctx, v, spec, want, nil)
}

// matches is like Matches, but also accepts the parent of v, or nil if the caller has not read it.
func (s *Service) matches(ctx context.Context, v Volume, spec Spec, want Origin, parent *Volume) error {
	if v.Snapshot {
		return fmt.Errorf("target %s: %w: %s is a snapshot", s.Name, ErrIncompatible, v)
	}
	if v.SizeBytes < spec.MinBytes || spec.MaxBytes > 0 && v.SizeBytes > spec.MaxBytes {
		return fmt.Errorf("target %s: %w: %s has %d bytes, but %s are requested", s.Name, ErrIncompatible, v, v.SizeBytes, spec.sizes())
	}
	if err := s.matchesOrigin(ctx, v, want, parent); err != nil {
		return err
	}
	if thin, err := s.createdThin(ctx, v); err != nil || thin == !spec.Class.Thick {
		return err
	}
	return fmt.Errorf("target %s: %w: %s has thin=%t, but thin=%t is requested", s.Name, ErrIncompatible, v, spec.Class.Thick, !spec.Class.Thick)
}

// createdThin reports whether a volume was created thin. Taking a snapshot makes the volume itself
// thin, while the snapshot remains as thin or thick as the volume was before. The oldest snapshot
// therefore shows how the volume was created.
func (s *Service) createdThin(ctx context.Context, v Volume) (bool, error) {
	at := v
	for {
		if n, ours := parseName(at.Base); !at.Thin || !ours || n.source != v.UUID {
			return at.Thin, nil
		}
		var err error
		if at, err = s.lookUp(ctx, v.Store+"/"+at.Base); errors.Is(err, ErrNotFound) {
			return false, fmt.Errorf("target %s: %w: a snapshot of %s was deleted during the call: try again", s.Name, ErrBusy, v)
		} else if err != nil {
			return false, err
		}
	}
}

func (spec Spec) sizes() string {
	if spec.MaxBytes > 0 {
		return fmt.Sprintf("%d to %d", spec.MinBytes, spec.MaxBytes)
	}
	return fmt.Sprintf("%d or more", spec.MinBytes)
}

// Expand grows a volume to at least minBytes and at most maxBytes, and returns its size. If
// maxBytes is 0, there is no limit.
func (s *Service) Expand(ctx context.Context, id string, minBytes, maxBytes int64) (int64, error) {
	v, err := s.GetVolume(ctx, id)
	if err != nil {
		return 0, err
	}
	v, err = s.grow(ctx, v, minBytes, maxBytes, nil)
	return v.SizeBytes, err
}

// checkGrowsBeyondParent fails with [ErrTooOld] if the target does not support volumes that are
// larger than their parents.
func (s *Service) checkGrowsBeyondParent(ctx context.Context, object string) error {
	release, err := s.rpc.Release(ctx)
	if err != nil {
		return err
	}
	if !release.Has(rpcschema.GrowsBeyondParent) {
		return fmt.Errorf("target %s: %s: %w: I/O to the new part of the volume would fail on SPDK %s. Upgrade SPDK to %s or later, or use the size of the snapshot", s.Name, object, ErrTooOld, release, rpcschema.GrowsBeyondParent.Since())
	}
	return nil
}

// grow is like Expand, but also accepts the volume's lvstore, or nil if the caller has not read it.
func (s *Service) grow(ctx context.Context, v Volume, minBytes, maxBytes int64, known *Store) (Volume, error) {
	if maxBytes > 0 && v.SizeBytes > maxBytes {
		return v, fmt.Errorf("target %s: %w: %s already has %d bytes, more than the limit of %d; volumes cannot shrink", s.Name, ErrOutOfRange, v, v.SizeBytes, maxBytes)
	}
	if v.SizeBytes >= minBytes {
		return v, nil
	}
	if v.Base != "" {
		if err := s.checkGrowsBeyondParent(ctx, fmt.Sprintf("grow %s, which has the snapshot %s below it", v, v.Base)); err != nil {
			return v, err
		}
	}
	room := func(known *Store) (st Store, err error) {
		if known != nil && v.Thin { // the free space is not needed
			st = *known
		} else if st, err = s.store(ctx, v.Store); err != nil {
			return st, err
		}
		switch size := st.Size(minBytes); {
		case maxBytes > 0 && size > maxBytes:
			return st, fmt.Errorf("target %s: %w: lvstore %s would allocate %d bytes for the requested %d, more than the limit of %d", s.Name, ErrOutOfRange, st.Name, size, minBytes, maxBytes)
		case size > st.TotalBytes:
			return st, fmt.Errorf("target %s: %w: lvstore %s has %d bytes in total, but %s would need %d", s.Name, ErrOutOfRange, st.Name, st.TotalBytes, v, size)
		case !v.Thin && size-v.SizeBytes > st.FreeBytes-s.Space.reserve(st):
			return st, fmt.Errorf("target %s: %w: lvstore %s has %d bytes free, %d of which are its reserve, but %s needs %d more", s.Name, ErrNoSpace, st.Name, st.FreeBytes, s.Space.reserve(st), v, size-v.SizeBytes)
		}
		return st, nil
	}
	st, err := room(known)
	if err != nil {
		return v, err
	}
	counted, err := s.promise(ctx, st, v.UUID, st.Size(minBytes))
	if err != nil {
		return v, err
	}
	failed := s.rpc.BdevLvolResize(ctx, spdkrpc.BdevLvolResizeParams{Name: v.UUID, SizeInMiB: uint64(st.Size(minBytes) / MiB)})
	if failed != nil && !readback.Clarifies(failed) {
		return v, fmt.Errorf("target %s: grow %s: %w", s.Name, v, failed)
	}
	grown, err := s.Get(ctx, v.UUID)
	switch {
	case err != nil:
		return v, err
	case grown.SizeBytes >= minBytes:
		counted.keep(grown)
		return grown, nil
	case failed == nil:
		return v, fmt.Errorf("target %s: %w: %s was grown to %d bytes, but has %d: try again", s.Name, ErrBusy, v, st.Size(minBytes), grown.SizeBytes)
	}
	if readback.Refused(failed) {
		counted.takeBack()
	}
	if _, err := room(nil); err != nil {
		return v, err
	}
	return v, fmt.Errorf("target %s: grow %s to %d bytes: %w", s.Name, v, st.Size(minBytes), failed)
}
