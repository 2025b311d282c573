package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Delete deletes a volume, and what exports it. It refuses while a host is admitted to it or connected. Snapshots of
// the volume stay. It succeeds when there is no such volume.
func (s *Service) Delete(ctx context.Context, id string) error {
	v, err := s.GetVolume(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return s.retract(ctx, id) // its export may have outlived it
	}
	if err != nil {
		return err
	}
	if err := s.retract(ctx, id); err != nil {
		return err
	}
	collapse, err := s.baseOf(ctx, v)
	if err != nil {
		return err
	}
	// The last clone takes over what its base holds before it goes, so that a crash in between leaves no base behind
	// that nothing refers to.
	if collapse != nil && len(collapse.Clones) <= 1 {
		if err := s.remove(ctx, *collapse); err != nil {
			return err
		}
		collapse = nil
	}
	if err := s.remove(ctx, v); err != nil {
		return err
	}
	if collapse == nil {
		return nil
	}
	return s.collapse(ctx, *collapse)
}

// baseOf returns the snapshot below a volume that only exists because volumes were cloned, if there is one.
func (s *Service) baseOf(ctx context.Context, v Volume) (*Volume, error) {
	if n, ours := parseName(v.Base); !ours || !n.base {
		return nil, nil
	}
	base, err := s.lookUp(ctx, v.Store+"/"+v.Base)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &base, err
}

// collapse deletes a base with only one clone left, which takes over what the base holds.
func (s *Service) collapse(ctx context.Context, base Volume) error {
	now, err := s.Get(ctx, base.UUID)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(now.Clones) > 1:
		return nil
	}
	return s.remove(ctx, now)
}

// DeleteSnapshot deletes a snapshot. A single clone takes over its contents; with more, SPDK cannot delete it. It
// succeeds when there is no such snapshot.
func (s *Service) DeleteSnapshot(ctx context.Context, id string) error {
	snap, err := s.GetSnapshot(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := hasClones(s.Name, snap.Volume); err != nil {
		return err
	}
	return s.remove(ctx, snap.Volume)
}

func hasClones(target string, v Volume) error {
	if len(v.Clones) < 2 {
		return nil
	}
	clones := slices.Sorted(slices.Values(v.Clones))
	return fmt.Errorf("target %s: %w: snapshot %s has %d clones, and SPDK deletes none with more than one: delete all but one of %s first", target, ErrInUse, v, len(clones), strings.Join(clones, ", "))
}

// remove deletes an lvol, and makes sure that it is gone.
func (s *Service) remove(ctx context.Context, v Volume) error {
	failed := s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: v.UUID})
	if failed == nil {
		return nil
	}
	if !readable(failed) {
		return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
	}
	now, err := s.Get(ctx, v.UUID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := hasClones(s.Name, now); err != nil {
		return err
	}
	return fmt.Errorf("target %s: delete %s: %w", s.Name, v, failed)
}
