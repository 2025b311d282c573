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

// SPDK deletes a snapshot only if it has at most one clone, which then receives the snapshot's
// clusters. With Config.DetachClones, the driver can also delete snapshots with several clones: it
// first copies the snapshot's clusters into all clones but one (bdev_lvol_decouple_parent). Copying
// is safe only while no host is writing to the clone; the proxy checks this.

// A Claim locks a volume against other calls until the current call ends. It fails if another call
// is already working on the volume.
type Claim func(id string) error

// makeDeletable makes sure that a snapshot has at most one clone. Without Config.DetachClones, it
// fails with ErrInUse if the snapshot has more clones.
func (s *Service) makeDeletable(ctx context.Context, snap Volume, claim Claim) error {
	if len(snap.Clones) < 2 || !s.DetachClones {
		return s.hasClones(ctx, snap)
	}
	detached, err := s.clonesToDetach(ctx, snap)
	if err != nil {
		return err
	}
	for _, c := range detached {
		if claim != nil {
			if err := claim(c.UUID); err != nil {
				return err
			}
		}
		if why, err := s.undetachable(ctx, c, snap); err != nil { // check again now that no other call is working on the clone
			return err
		} else if why != "" {
			return fmt.Errorf("target %s: %w: %s, a clone of snapshot %s, %s: try again", s.Name, ErrBusy, c, snap, why)
		}
	}
	if err := s.checkRoomToDetach(ctx, snap, len(detached)); err != nil {
		return err
	}
	if !s.detaching.TryLock() {
		return fmt.Errorf("target %s: %w: clones of another snapshot are being detached: try again", s.Name, ErrBusy)
	}
	defer s.detaching.Unlock()
	for _, c := range detached {
		if err := s.decouple(ctx, c, snap); err != nil {
			return err
		}
	}
	return nil
}

// clonesToDetach returns all but one of a snapshot's clones. If one clone cannot be detached,
// clonesToDetach omits that clone.
func (s *Service) clonesToDetach(ctx context.Context, snap Volume) (detach []Volume, err error) {
	var stays []string
	for _, name := range slices.Sorted(slices.Values(snap.Clones)) {
		c, err := s.lookUp(ctx, snap.Store+"/"+name)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("target %s: %w: the clones of snapshot %s changed during the call: try again", s.Name, ErrBusy, snap)
		}
		if err != nil {
			return nil, err
		}
		why, err := s.undetachable(ctx, c, snap)
		if err != nil {
			return nil, err
		}
		if why == "" {
			detach = append(detach, c)
		} else {
			users, err := s.dependants(ctx, snap.Store, name)
			if err != nil {
				return nil, err
			}
			if isBase(name) {
				why = "depend on it through an internal snapshot"
			}
			stays = append(stays, strings.Join(users, ", ")+" "+why)
		}
	}
	switch len(stays) {
	case 0:
		return detach[1:], nil
	case 1:
		return detach, nil
	}
	return nil, fmt.Errorf("target %s: %w: snapshot %s has %d clones, and more than one of them cannot be detached from it: %s: delete all but one of these first, or detach volumes from their nodes",
		s.Name, ErrInUse, snap, len(snap.Clones), strings.Join(stays, "; "))
}

// undetachable returns the reason why a clone cannot be detached from its snapshot, or "" if it can
// be detached.
func (s *Service) undetachable(ctx context.Context, c, snap Volume) (why string, err error) {
	switch {
	case c.Snapshot:
		return "is a snapshot itself", nil
	case c.SizeBytes > snap.SizeBytes:
		// SPDK's bs_cluster_needs_allocation reads beyond the end of the parent's list of clusters.
		return "was enlarged, and SPDK can detach only volumes of the snapshot's size", nil
	}
	exported, err := s.exports.Exists(ctx, c.UUID)
	if exported {
		why = "is exported, and its data can only be copied while no host uses it"
	}
	return why, err
}

// checkRoomToDetach fails with ErrNoSpace if the copies would use part of the lvstore's reserve.
func (s *Service) checkRoomToDetach(ctx context.Context, snap Volume, copies int) error {
	st, err := s.store(ctx, snap.Store)
	if err != nil {
		return err
	}
	one := snap.SizeBytes
	if snap.Allocated != nil {
		one = int64(*snap.Allocated) * st.ClusterBytes
	}
	if need, free := one*int64(copies), max(0, st.FreeBytes-s.Space.reserve(st)); need > free {
		users, err := s.usersOf(ctx, snap)
		if err != nil {
			return err
		}
		return fmt.Errorf("target %s: %w: the data of snapshot %s would be copied into %d clones, which takes up to %d bytes, and lvstore %s has %d free in addition to its reserve: delete the claims of some of these instead: %s",
			s.Name, ErrNoSpace, snap, copies, need, st.Name, free, strings.Join(users, ", "))
	}
	return nil
}

// decouple copies the clusters that a clone shares with its parent into the clone. The clone's new
// parent is the parent of its old parent.
func (s *Service) decouple(ctx context.Context, c, parent Volume) error {
	failed := s.rpc.BdevLvolDecoupleParent(ctx, spdkrpc.BdevLvolDecoupleParentParams{Name: c.UUID})
	if failed == nil {
		return nil
	}
	if readback.Clarifies(failed) {
		if now, err := s.lookUp(ctx, c.UUID); err == nil && now.Base != parent.Name || errors.Is(err, ErrNotFound) {
			return nil
		}
	}
	return fmt.Errorf("target %s: detach %s from snapshot %s: %w", s.Name, c, parent, failed)
}
