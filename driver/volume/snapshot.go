package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Snapshot is a snapshot that a user requested, as opposed to a base created by cloning.
type Snapshot struct {
	Volume
	// SourceUUID is the UUID of the snapshot's source volume, even if that volume has been deleted.
	// It is empty if the source is unknown, as for snapshots taken by SPDK's spdk-csi.
	SourceUUID string
	// CreatedAt is the time of the snapshot, in whole seconds. It is zero if the time is unknown,
	// as for snapshots taken by SPDK's spdk-csi.
	CreatedAt time.Time
	// Group is the group snapshot that the snapshot belongs to; empty if none.
	Group GroupID
}

// Snapshot takes a snapshot of a volume under the given name. If a snapshot with this name exists,
// Snapshot returns that snapshot, or fails with ErrIncompatible if it belongs to another volume.
func (s *Service) Snapshot(ctx context.Context, name, source string) (Snapshot, error) {
	var v Volume
	var lvols []spdkrpc.LvolInfo
	var unknown, unlisted, held error
	var reading sync.WaitGroup
	reading.Go(func() { v, unknown = s.GetVolume(ctx, source) })
	reading.Go(func() { lvols, unlisted = s.lvolsSoon(ctx) })
	reading.Go(func() { held = s.exports.CheckHoldsIO(ctx, source) }) // held matters only if a snapshot is taken
	reading.Wait()
	for _, err := range []error{unknown, unlisted} {
		if err != nil {
			return Snapshot{}, err
		}
	}
	snap, err := s.findSnapshotIn(ctx, lvols, name)
	if errors.Is(err, ErrNotFound) {
		if held == nil {
			held = s.checkDepthIn(ctx, lvols, v)
		}
		snap, err = s.snapshot(ctx, name, v, held)
	}
	if err != nil {
		return Snapshot{}, err
	}
	if snap.SourceUUID == "" {
		// A snapshot taken by SPDK's spdk-csi is a snapshot of this volume if it is an ancestor of
		// this volume.
		if snap.SourceUUID, err = s.sourceOfLegacySnapshot(ctx, snap.Volume, v); err != nil {
			return Snapshot{}, err
		}
	}
	if snap.SourceUUID != source {
		return Snapshot{}, fmt.Errorf("target %s: %w: snapshot %q exists as %s, taken of volume %s, but a snapshot of %s is requested", s.Name, ErrIncompatible, name, snap.Volume, snap.SourceUUID, v)
	}
	return snap, nil
}

// snapshot takes a snapshot. If refused is not nil, it fails with that error instead.
func (s *Service) snapshot(ctx context.Context, name string, v Volume, refused error) (Snapshot, error) {
	lvol := snapshotName(name, v.UUID, s.Now())
	failed := refused
	if failed == nil {
		_, failed = s.snapshotNow(ctx, v, lvol)
	}
	if failed != nil && !readback.Clarifies(failed) {
		return Snapshot{}, fmt.Errorf("target %s: take snapshot %q of %s: %w", s.Name, name, v, failed)
	}
	var named []spdkrpc.LvolInfo
	var unlisted error
	var listing sync.WaitGroup
	if failed == nil {
		listing.Go(func() { named, unlisted = s.snapshotsNamed(ctx, name) })
	}
	taken, err := s.lookUp(ctx, v.Store+"/"+lvol)
	listing.Wait()
	switch {
	case err == nil && failed == nil && unlisted == nil:
		return s.keepOldest(ctx, name, taken, named)
	case err == nil:
		return s.keepOldest(ctx, name, taken, nil)
	case !errors.Is(err, ErrNotFound):
		return Snapshot{}, err
	case failed == nil:
		return Snapshot{}, fmt.Errorf("target %s: %w: snapshot %q of %s was taken, but no longer exists: try again", s.Name, ErrBusy, name, v)
	}
	snap, err := s.FindSnapshot(ctx, name) // another call may have taken the snapshot
	if errors.Is(err, ErrNotFound) {
		return Snapshot{}, fmt.Errorf("target %s: take snapshot %q of %s: %w", s.Name, name, v, failed)
	}
	return snap, err
}

// GetSnapshot returns the snapshot with the given UUID.
func (s *Service) GetSnapshot(ctx context.Context, id string) (Snapshot, error) {
	v, err := s.Get(ctx, id)
	if err != nil {
		return Snapshot{}, err
	}
	return s.asSnapshot(v)
}

func (s *Service) asSnapshot(v Volume) (Snapshot, error) {
	n, ours := parseName(v.Name)
	if !v.Snapshot || n.base {
		return Snapshot{}, fmt.Errorf("target %s: %w: %s is not a snapshot that was requested: it is a volume, or an internal snapshot of a clone", s.Name, ErrWrongKind, v)
	}
	if !ours {
		return Snapshot{Volume: v}, nil
	}
	return Snapshot{Volume: v, SourceUUID: n.source, CreatedAt: n.createdAt, Group: n.group}, nil
}

// sourceOfLegacySnapshot returns the UUID of v if snap, a snapshot taken by SPDK's spdk-csi, is an
// ancestor of v, and "" otherwise.
func (s *Service) sourceOfLegacySnapshot(ctx context.Context, snap, v Volume) (source string, err error) {
	for name := v.Base; name != ""; {
		if name == snap.Name && v.Store == snap.Store {
			return v.UUID, nil
		}
		parent, err := s.lookUp(ctx, v.Store+"/"+name)
		if err != nil {
			return "", err
		}
		name = parent.Base
	}
	return "", nil
}

// lvols lists the lvols in all lvstores that the driver may use.
func (s *Service) lvols(ctx context.Context) ([]spdkrpc.LvolInfo, error) {
	stores, err := s.Stores(ctx)
	if err != nil {
		return nil, err
	}
	return s.lvolsIn(ctx, stores)
}

// lvolsSoon is like lvols, but takes one round trip instead of two. It lists the lvols of
// previously seen lvstores while it waits for the target to load the lvstores. The list may
// therefore be incomplete immediately after a restart of the target. Use lvolsSoon only if the
// caller creates an lvol, lists the lvols again, and only then decides (see keepOldest).
func (s *Service) lvolsSoon(ctx context.Context) ([]spdkrpc.LvolInfo, error) {
	known := slices.DeleteFunc(s.seen.known(), func(st Store) bool { return !s.permits(st.Name) })
	lists, failures := make([][]spdkrpc.LvolInfo, len(known)), make([]error, len(known))
	var listing sync.WaitGroup
	for i, st := range known {
		listing.Go(func() { lists[i], failures[i] = s.lvolsOf(ctx, st) })
	}
	stores, err := s.Stores(ctx)
	listing.Wait()
	if err != nil {
		return nil, err
	}
	same := len(stores) == len(known) && errors.Join(failures...) == nil && !slices.ContainsFunc(stores, func(st Store) bool {
		return !slices.ContainsFunc(known, func(k Store) bool { return k.UUID == st.UUID && k.Name == st.Name })
	})
	if !same {
		return s.lvolsIn(ctx, stores)
	}
	return slices.Concat(lists...), nil
}

func (s *Service) lvolsIn(ctx context.Context, stores []Store) ([]spdkrpc.LvolInfo, error) {
	lists := make([][]spdkrpc.LvolInfo, len(stores))
	g, ctx := errgroup.WithContext(ctx)
	for i, st := range stores {
		g.Go(func() error {
			var err error
			lists[i], err = s.lvolsOf(ctx, st)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []spdkrpc.LvolInfo
	for _, l := range lists {
		all = append(all, l...)
	}
	return all, nil
}

func (s *Service) lvolsOf(ctx context.Context, st Store) ([]spdkrpc.LvolInfo, error) {
	lvols, err := s.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{LvsUUID: &st.UUID})
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return nil, fmt.Errorf("target %s: %w: %q disappeared during the call: try again", s.Name, ErrStoreMissing, st.Name)
	case err != nil:
		return nil, fmt.Errorf("target %s: list lvstore %s: %w", s.Name, st.Name, err)
	}
	return lvols, nil
}
