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

// Delete deletes a volume and its export. It fails with ErrInUse while a host is admitted or
// connected. It does not delete snapshots of the volume. It succeeds if the volume does not exist.
func (s *Service) Delete(ctx context.Context, id string) error {
	var exported bool
	var unknown error
	var reading sync.WaitGroup
	reading.Go(func() { exported, unknown = s.exports.Exists(ctx, id) })
	v, err := s.GetVolume(ctx, id)
	reading.Wait()
	missing := errors.Is(err, ErrNotFound)
	if err != nil && !missing {
		return err
	}
	if missing {
		s.sweep(ctx) // the bases of the volume may still exist
	}
	if exported || unknown != nil {
		if err := s.removeExport(ctx, id); err != nil {
			return err
		}
	}
	if missing {
		return s.confirmDeleted(ctx, id)
	}
	return s.removeWithBases(ctx, v)
}

// DeleteSnapshot deletes a snapshot. If the snapshot has one clone, its contents move to that
// clone. If the snapshot has several clones, DeleteSnapshot fails with ErrInUse or, with
// Config.DetachClones, first detaches all clones but one. It calls claim, which may be nil, for
// each clone that it detaches. DeleteSnapshot fails with ErrMember if the snapshot belongs to a
// group, and succeeds if the snapshot does not exist.
func (s *Service) DeleteSnapshot(ctx context.Context, id string, claim Claim) error {
	snap, err := s.GetSnapshot(ctx, id)
	if errors.Is(err, ErrNotFound) {
		s.sweep(ctx)
		return s.proveDeleted(ctx, id)
	}
	if err != nil {
		return err
	}
	if snap.Group != (GroupID{}) {
		return fmt.Errorf("target %s: %w: %s belongs to the group snapshot %s: delete the group instead", s.Name, ErrMember, snap, snap.Group)
	}
	if err := s.makeDeletable(ctx, snap.Volume, claim); err != nil {
		return err
	}
	return s.removeWithBases(ctx, snap.Volume)
}

// remove deletes an lvol, and verifies that the lvol no longer exists.
func (s *Service) remove(ctx context.Context, v Volume) error {
	failed := s.deleteLvol(ctx, v)
	if failed == nil {
		s.forget(v.UUID)
		s.seen.forgetRefusal(v.UUID)
		return nil
	}
	if !readback.Clarifies(failed) {
		return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
	}
	now, err := s.Get(ctx, v.UUID)
	if errors.Is(err, ErrNotFound) {
		s.forget(v.UUID)
		if kind := spdkrpc.KindOf(failed); kind == spdkrpc.Busy || kind == spdkrpc.Failed {
			s.seen.noteRefusal(v)
		}
		return s.confirmDeleted(ctx, v.UUID) // SPDK may still be deleting the volume
	}
	if err != nil {
		return err
	}
	if err := s.hasClones(ctx, now); err != nil {
		return err
	}
	return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
}

// confirmDeleted verifies that the deletion of an unlisted volume is complete, by deleting the
// volume again. While SPDK is clearing the clusters of a volume, which can take minutes, it does
// not list the volume and refuses to delete it. When the deletion is complete, SPDK responds that
// the volume does not exist.
func (s *Service) confirmDeleted(ctx context.Context, id string) error {
	// Check the lvstore first: SPDK would delete a volume without a bdev even from an lvstore that
	// the driver must not use.
	all, err := s.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	if err != nil {
		return fmt.Errorf("target %s: list volumes, to check that %s is deleted: %w", s.Name, id, err)
	}
	if i := slices.IndexFunc(all, func(l spdkrpc.LvolInfo) bool { return l.UUID == id }); i >= 0 {
		if s.permits(all[i].Lvs.Name) {
			return fmt.Errorf("target %s: %w: %s (%s) has no bdev, and is in an lvstore that was loaded during the call, or that is on a logical volume: try again, and see spdk-csi doctor", s.Name, ErrBusy, all[i].Alias, id)
		}
		return fmt.Errorf("target %s: %w: %s (%s) is in lvstore %q: if the driver may use this lvstore, add it to lvstores in config.json", s.Name, ErrStoreForbidden, all[i].Alias, id, all[i].Lvs.Name)
	}
	failed := s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: id})
	switch {
	case failed == nil:
		s.seen.forgetRefusal(id)
		return nil
	case errors.Is(failed, spdkrpc.NoSuchDevice), errors.Is(failed, spdkrpc.Denied):
		return s.proveDeleted(ctx, id)
	case readback.Refused(failed):
		return fmt.Errorf("target %s: %w: volume %s is still being deleted, because SPDK clears its clusters first: try again: %w", s.Name, ErrBusy, id, failed)
	}
	return fmt.Errorf("target %s: delete volume %s: %w", s.Name, id, failed)
}
