package quiesce

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	snapshotMethod = "bdev_lvol_snapshot"
	codeNoDevice   = -int(syscall.ENODEV)
)

// A Snapshot is one that is wanted.
type Snapshot struct {
	Volume string // the logical volume: name, alias or UUID of its bdev
	Name   string // of the snapshot, in the volume's lvstore
	NQN    string // of the subsystem that exports the volume; "" or a wrong one: it is looked for
}

// A Taken is a snapshot that was taken.
type Taken struct {
	UUID   string
	Frozen bool // the volume was frozen meanwhile; otherwise nothing used it
}

// Take takes snapshots of volumes, of all at one moment or of none. Volumes that
// hosts use are frozen meanwhile, or refused if they cannot be.
//
// With mode.Freeze, what can be frozen is; without, it is refused. With mode.Idle,
// an export that no host is connected to does not count as use, although one could
// connect in the next moment: for clients that know nothing of freezing.
//
// Once something is frozen, ctx does not end the operation. Of the errors,
// *InUseError, *ExistsError, *BusyError, *AnswerError and one of the kind
// spdkrpc.Unreachable mean that nothing was taken; an *spdkrpc.Error of another kind
// is the target's. Where nothing has to be frozen, mode.Idle leaves it to SPDK to
// refuse a name that is taken.
func (q *Quiescer) Take(ctx context.Context, wanted []Snapshot, mode Mode) ([]Taken, error) {
	taken, err := q.take(ctx, wanted, mode)
	return taken, q.refused(err, "SPDK can destroy the lvstore when it takes a snapshot of a volume that is being written")
}

func (q *Quiescer) take(ctx context.Context, wanted []Snapshot, mode Mode) (taken []Taken, err error) {
	t, leave, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var held holds
	defer held.giveAll()
	found, err := q.prepare(ctx, t, task{
		instead: "spdkgate_lvol_snapshot instead of bdev_lvol_snapshot", names: true,
		look: func(ctx context.Context, rpc *spdkrpc.Client) ([]*volume, error) { return look(ctx, rpc, wanted) },
	}, mode, &held)
	if err != nil {
		return nil, before(err)
	}
	if len(found.volumes) > 1 { // if one fails, others are deleted
		leave, err := q.deleting(ctx, t)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if len(found.paths) == 0 {
		taken, err = q.act(t, found.volumes)
		q.reportConnected(t, found.idle)
		return taken, err
	}
	var e entry
	for _, v := range found.volumes {
		e.Making = append(e.Making, v.alias())
	}
	err = q.frozen(ctx, t, found.paths, e, func() (err error) {
		taken, err = q.act(t, found.volumes)
		return err
	})
	for i := range taken {
		taken[i].Frozen = found.volumes[i].claimed
	}
	return taken, err
}

// act takes the snapshots, and undoes those that were taken if one fails. It waits
// as long as the connection lasts: a volume that is thawed while its snapshot is
// being taken, or deleted, is what must not be.
func (q *Quiescer) act(t *Target, volumes []*volume) ([]Taken, error) {
	taken, errs := make([]Taken, len(volumes)), make([]error, len(volumes))
	done := make(chan struct{})
	go q.logFailure(volumes[0].alias(), len(volumes), done)
	defer close(done)
	var g errgroup.Group
	for i, v := range volumes {
		g.Go(func() error {
			taken[i].UUID, errs[i] = t.rpc.BdevLvolSnapshot(context.Background(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.uuid, SnapshotName: v.Name})
			if e := unreadable(errs[i]); e != nil { // SPDK has taken it, perhaps
				errs[i] = &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.OutcomeUnknown, Err: e}
			}
			return errs[i]
		})
	}
	err := g.Wait()
	if err == nil {
		return taken, nil
	}
	for i, err := range errs {
		if err != nil {
			continue
		}
		undo := t.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: taken[i].UUID})
		if undo != nil {
			q.opts.Log.Error("a snapshot is left over, as others that belong to it failed", "snapshot", volumes[i].alias(), "error", undo)
			return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.OutcomeUnknown, Err: undo}
		}
	}
	for _, e := range errs { // what may have been executed counts most
		if errors.Is(e, spdkrpc.OutcomeUnknown) {
			return nil, e
		}
	}
	return nil, err
}
