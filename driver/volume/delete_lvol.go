package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// deleteLvol deletes an lvol. When SPDK deletes a snapshot, it moves the snapshot's clusters to its
// only clone without waiting for writes to the clone. The proxy therefore freezes the I/O of the
// clone's hosts during the deletion, and refuses the call if it cannot freeze this I/O.
func (s *Service) deleteLvol(ctx context.Context, v Volume) error {
	if !v.Snapshot {
		return s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: v.UUID})
	}
	clone, err := s.onlyClone(ctx, v)
	if err != nil {
		return err
	}
	if clone != nil {
		if err := s.exports.CheckHoldsIO(ctx, clone.UUID); err != nil {
			return err
		}
	}
	_, err = s.rpc.SpdkgateLvolDelete(ctx, spdkrpc.SpdkgateLvolDeleteParams{Name: v.UUID})
	if !errors.Is(err, spdkrpc.MethodNotFound) {
		return err
	}
	if clone != nil {
		used, err := s.hasUsers(ctx, *clone)
		if err != nil && !errors.Is(err, spdkrpc.NoSuchDevice) {
			return err
		}
		if used {
			return fmt.Errorf("%w: its clone %s is exported: SPDK can lose data when it deletes the snapshot below a volume that is being written, and this target's proxy is too old to prevent that: "+
				"upgrade spdk-proxy, or detach that volume first", ErrInUse, clone)
		}
	}
	return s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: v.UUID})
}

// onlyClone returns the clone of a snapshot that has exactly one clone, unless that clone is itself
// a snapshot. Otherwise, it returns nil.
func (s *Service) onlyClone(ctx context.Context, v Volume) (*Volume, error) {
	now, err := s.lookUp(ctx, v.UUID)
	if err != nil || len(now.Clones) != 1 {
		return nil, ignore(err, ErrNotFound)
	}
	clone, err := s.lookUp(ctx, now.Store+"/"+now.Clones[0])
	if err != nil || clone.Snapshot {
		return nil, ignore(err, ErrNotFound)
	}
	return &clone, nil
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// hasUsers reports whether a volume is exported or used by another bdev.
func (s *Service) hasUsers(ctx context.Context, v Volume) (bool, error) {
	list, err := s.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &v.UUID})
	if err != nil {
		return false, err
	}
	if len(list) != 1 {
		return false, fmt.Errorf("%w: the target returned %d bdevs instead of one: try again", ErrBusy, len(list))
	}
	nodes, err := s.rpc.ISCSIGetTargetNodes(ctx)
	if err != nil {
		return false, err
	}
	used := list[0].Claimed // used by a namespace, or by a bdev above the volume
	for _, n := range nodes {
		for _, l := range n.LUNs {
			used = used || l.BdevName == v.UUID
		}
	}
	return used, nil
}
