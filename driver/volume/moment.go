package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Limits for snapshots on several targets.
const (
	// hostsWait limits how long hosts hold back I/O if this controller dies while their volumes are
	// frozen.
	hostsWait = 2 * time.Second
	// giveUpWait limits the duration of the calls that end the freeze after a failed group
	// snapshot.
	giveUpWait = hostsWait
)

// takeAtOneMoment takes simultaneous snapshots on several targets. Each proxy freezes its volumes
// and waits at a barrier. The barriers are opened only when all proxies are waiting. At that time,
// nothing can be written to any of the volumes, and each volume remains frozen until its snapshot
// has been taken. If takeAtOneMoment fails, some targets may still have taken their snapshots.
func takeAtOneMoment(ctx context.Context, requests map[*Service][]spdkrpc.ProxySnapshotRequest) error {
	barrier := rand.Text()
	step := func(ctx context.Context, action spdkrpc.SpdkgateLvolSnapshotBarrierStep) error {
		g, gctx := errgroup.WithContext(ctx)
		for s := range requests {
			g.Go(func() error {
				if err := s.rpc.SpdkgateLvolSnapshotBarrier(gctx, spdkrpc.SpdkgateLvolSnapshotBarrierParams{ID: barrier, Step: action}); err != nil {
					return fmt.Errorf("target %s: %w", s.Name, err)
				}
				return nil
			})
		}
		return g.Wait()
	}

	freezing, failed := context.WithCancelCause(ctx) // valid until all volumes are frozen, or a call has failed
	defer failed(nil)
	var taking errgroup.Group
	for s, r := range requests {
		taking.Go(func() error {
			_, err := s.rpc.SpdkgateLvolSnapshot(ctx, spdkrpc.SpdkgateLvolSnapshotParams{
				Snapshots: r, Barrier: &spdkrpc.ProxySnapshotBarrier{ID: barrier, WaitMS: uint32(hostsWait.Milliseconds())},
			})
			if err != nil {
				err = fmt.Errorf("target %s: %w", s.Name, err)
				failed(err)
			}
			return err
		})
	}
	err := step(freezing, spdkrpc.SpdkgateLvolSnapshotBarrierStepAwait)
	if err == nil {
		err = step(ctx, spdkrpc.SpdkgateLvolSnapshotBarrierStepOpen)
	}
	if err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWait)
		defer cancel()
		_ = step(ending, spdkrpc.SpdkgateLvolSnapshotBarrierStepGiveUp) // if this fails, the freeze ends by itself
	}
	taken := taking.Wait()
	if taken == nil {
		return nil // all snapshots were taken, even if the reply to a step was lost
	}
	return errors.Join(taken, err)
}
