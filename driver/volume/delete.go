package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Delete deletes a volume, and what exports it. It refuses while a host is admitted to it or connected. Snapshots of
// the volume stay. It succeeds when there is no such volume.
func (s *Service) Delete(ctx context.Context, id string) error {
	v, err := s.GetVolume(ctx, id)
	if errors.Is(err, ErrNotFound) {
		// Its bases and its export may still exist.
		s.sweep(ctx)
		if err := s.removeExport(ctx, id); err != nil {
			return err
		}
		return s.confirmDeleted(ctx, id)
	}
	if err != nil {
		return err
	}
	if err := s.removeExport(ctx, id); err != nil {
		return err
	}
	return s.removeWithBases(ctx, v)
}

// DeleteSnapshot deletes a snapshot. A single clone takes over its contents; with more, SPDK cannot delete it. It
// succeeds when there is no such snapshot.
func (s *Service) DeleteSnapshot(ctx context.Context, id string) error {
	snap, err := s.GetSnapshot(ctx, id)
	if errors.Is(err, ErrNotFound) {
		s.sweep(ctx)
		return nil
	}
	if err != nil {
		return err
	}
	if err := hasClones(s.Name, snap.Volume); err != nil {
		return err
	}
	return s.removeWithBases(ctx, snap.Volume)
}

func hasClones(target string, v Volume) error {
	if len(v.Clones) < 2 {
		return nil
	}
	clones := slices.Sorted(slices.Values(v.Clones))
	return fmt.Errorf("target %s: %w: snapshot %s has %d clones, and SPDK deletes only those with one at most: delete all but one of %s first", target, ErrInUse, v, len(clones), strings.Join(clones, ", "))
}

// remove deletes an lvol, and makes sure that it is gone.
func (s *Service) remove(ctx context.Context, v Volume) error {
	failed := s.deleteLvol(ctx, v)
	if failed == nil {
		s.forget(v.UUID)
		return nil
	}
	if !readback.Clarifies(failed) {
		return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
	}
	now, err := s.Get(ctx, v.UUID)
	if errors.Is(err, ErrNotFound) {
		s.forget(v.UUID)
		return s.confirmDeleted(ctx, v.UUID) // SPDK may still be at it
	}
	if err != nil {
		return err
	}
	if err := hasClones(s.Name, now); err != nil {
		return err
	}
	return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
}

// confirmDeleted makes sure that nothing is left of a volume that the target does not list. While SPDK clears the clusters of
// a volume, which can take minutes, it no longer lists it, and refuses to delete it again. For a volume that does not
// exist it says that.
func (s *Service) confirmDeleted(ctx context.Context, id string) error {
	if len(s.Config.Stores) > 0 { // SPDK deletes also what has no bdev, wherever it lies
		all, err := s.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
		if err != nil {
			return fmt.Errorf("target %s: list volumes, to know whether %s is deleted: %w", s.Name, id, err)
		}
		if i := slices.IndexFunc(all, func(l spdkrpc.LvolInfo) bool { return l.UUID == id }); i >= 0 {
			return fmt.Errorf("target %s: %w: %s (%s) lies in lvstore %q: add it to lvstores in the configuration if it is the driver's", s.Name, ErrStoreForbidden, all[i].Alias, id, all[i].Lvs.Name)
		}
	}
	failed := s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: id})
	switch {
	case failed == nil, errors.Is(failed, spdkrpc.NoSuchDevice), errors.Is(failed, spdkrpc.Denied):
		return nil
	case readback.Refused(failed):
		return fmt.Errorf("target %s: %w: volume %s is still being deleted: its space is cleared first; try again: %w", s.Name, ErrBusy, id, failed)
	}
	return fmt.Errorf("target %s: delete volume %s: %w", s.Name, id, failed)
}
