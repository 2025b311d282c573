package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// maxDepth limits the number of snapshots below a volume, because SPDK fails or crashes when it
// loads chains of 300 snapshots.
const maxDepth = 64

// snapshotNow takes a snapshot of a volume that hosts may be writing to. SPDK can destroy the
// lvstore if hosts write during a snapshot, so the proxy freezes the hosts' I/O, and refuses the
// call if it cannot. The caller must have checked that the hosts can hold back I/O (CheckHoldsIO),
// and that the volume's chain is not too deep.
func (s *Service) snapshotNow(ctx context.Context, v Volume, name string) (id string, err error) {
	list, err := s.rpc.SpdkgateLvolSnapshot(ctx, spdkrpc.SpdkgateLvolSnapshotParams{
		Snapshots: []spdkrpc.ProxySnapshotRequest{{LvolName: v.UUID, SnapshotName: name, NQN: new(export.NQN(v.UUID))}},
	})
	switch {
	case errors.Is(err, spdkrpc.MethodNotFound):
		id, err = s.snapshotUnfrozen(ctx, v, name)
		return id, deletedMeanwhile(v.String(), err)
	case err != nil:
		return "", deletedMeanwhile(v.String(), err)
	case len(list) != 1:
		return "", fmt.Errorf("the proxy returned %d snapshots instead of one", len(list))
	}
	return list[0].UUID, nil
}

// deletedMeanwhile converts SPDK's error for a nonexistent volume to ErrBusy. Use it for a volume
// that was read earlier in the same call.
func deletedMeanwhile(object string, failed error) error {
	if errors.Is(failed, spdkrpc.NoSuchDevice) {
		return fmt.Errorf("%w: %s was deleted during the call: try again: %w", ErrBusy, object, failed)
	}
	return failed
}

// snapshotUnfrozen takes a snapshot through a proxy that cannot freeze I/O. It fails with ErrInUse
// if the volume is in use.
func (s *Service) snapshotUnfrozen(ctx context.Context, v Volume, name string) (id string, err error) {
	used, err := s.hasUsers(ctx, v)
	if err != nil {
		return "", err
	}
	if used {
		return "", fmt.Errorf("%w: the volume is exported: SPDK can destroy the lvstore when it takes a snapshot of a volume that is being written, and this target's proxy is too old to prevent that: "+
			"upgrade spdk-proxy, or detach the volume first", ErrInUse)
	}
	return s.rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: name})
}

// checkDepthIn is like checkDepth, but for callers that have already listed the lvols. Following
// the chain takes one query per snapshot, so checkDepthIn follows the chain only if the lvstore has
// enough snapshots for the chain to be too long.
func (s *Service) checkDepthIn(ctx context.Context, lvols []spdkrpc.LvolInfo, v Volume) error {
	snapshots := 0
	for _, l := range lvols {
		if l.Lvs.Name == v.Store && isSnapshot(l.Name, l.IsSnapshot) {
			snapshots++
		}
	}
	if snapshots < maxDepth {
		return nil
	}
	return s.checkDepth(ctx, v)
}

// checkDepth fails with ErrTooDeep if another snapshot would make the chain below a volume too
// long.
func (s *Service) checkDepth(ctx context.Context, v Volume) error {
	for depth, at := 1, v; at.Base != ""; depth++ {
		if depth >= maxDepth {
			return fmt.Errorf("%w: %s has a chain of %d snapshots, and SPDK cannot load much longer chains: delete some snapshots, or copy the volume", ErrTooDeep, v, depth)
		}
		var err error
		if at, err = s.lookUp(ctx, at.Store+"/"+at.Base); err != nil {
			return err
		}
	}
	return nil
}
