package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// hasClones fails with ErrInUse if a snapshot has more than one clone. The error lists the clones
// by names that Kubernetes users know: volumes by the names of their PersistentVolumes, and
// requested snapshots. In place of an internal snapshot, it lists the volumes created from that
// snapshot.
func (s *Service) hasClones(ctx context.Context, v Volume) error {
	if len(v.Clones) < 2 {
		return nil
	}
	clones, err := s.usersOf(ctx, v)
	if err != nil {
		return err
	}
	remedy := "delete the claims of PersistentVolumes and the VolumeSnapshots among these, until one is left"
	if !s.DetachClones {
		remedy += `; or let the driver detach them, by {"snapshots": {"deleteWithClones": "detach"}} in config.json, which takes the space and the time of a copy for each`
	}
	return fmt.Errorf("target %s: %w: snapshot %s has %d clones, and SPDK deletes only snapshots with at most one: %s. To delete the snapshot, %s",
		s.Name, ErrInUse, v, len(v.Clones), strings.Join(clones, ", "), remedy)
}

// usersOf describes a snapshot's clones by names that Kubernetes users know.
func (s *Service) usersOf(ctx context.Context, snap Volume) (clones []string, err error) {
	for _, name := range slices.Sorted(slices.Values(snap.Clones)) {
		users, err := s.dependants(ctx, snap.Store, name)
		if err != nil {
			return nil, err
		}
		if isBase(name) {
			users = []string{"all of [" + strings.Join(users, ", ") + "], which were cloned from each other"}
		}
		clones = append(clones, users...)
	}
	return clones, nil
}

// dependants describes a clone of a snapshot, given the name of its lvol. If the clone is an
// internal snapshot, dependants describes the volumes and snapshots that depend on it.
func (s *Service) dependants(ctx context.Context, store, name string) ([]string, error) {
	c, err := s.lookUp(ctx, store+"/"+name)
	if errors.Is(err, ErrNotFound) {
		return []string{name}, nil // renamed or deleted in the meantime
	}
	if err != nil {
		return nil, err
	}
	parsed, ours := parseName(name)
	switch {
	case ours && !parsed.base, c.Snapshot && !ours:
		return []string{"snapshot " + s.Name + ":" + c.UUID}, nil
	case !c.Snapshot:
		plain, _ := strings.CutSuffix(name, usedSuffix)
		return []string{"PersistentVolume " + plain}, nil
	}
	var all []string
	for _, below := range slices.Sorted(slices.Values(c.Clones)) {
		users, err := s.dependants(ctx, store, below)
		if err != nil {
			return nil, err
		}
		all = append(all, users...)
	}
	return all, nil
}

// Undeletable returns the error that DeleteSnapshot would currently return for a snapshot, or nil
// if it would delete the snapshot. Undeletable changes nothing.
func (s *Service) Undeletable(ctx context.Context, id string) error {
	snap, err := s.GetSnapshot(ctx, id)
	if err != nil {
		return ignore(err, ErrNotFound)
	}
	if len(snap.Clones) < 2 || !s.DetachClones {
		return s.hasClones(ctx, snap.Volume)
	}
	detached, err := s.clonesToDetach(ctx, snap.Volume)
	if err != nil {
		return err
	}
	return s.checkRoomToDetach(ctx, snap.Volume, len(detached))
}
