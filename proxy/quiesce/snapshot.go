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

// A Snapshot describes a snapshot to be taken.
type Snapshot struct {
	Volume string // name, alias or UUID of the logical volume's bdev
	Name   string // name of the snapshot in the volume's lvstore
	// subsystem that exports the volume; if it is "" or wrong, all subsystems are searched
	NQN string
}

// A Taken describes a snapshot that was taken.
type Taken struct {
	UUID   string
	Frozen bool // whether the volume was frozen; if not, it was not in use
}

// Take takes snapshots of volumes, either of all at the same time or of none. It freezes volumes
// that hosts are using, or returns an error if it cannot.
//
// Without mode.Freeze, Take returns an error for volumes in use. With mode.Idle, an export without
// a connected host does not count as use, although a host could connect at any time. mode.Idle is
// meant for clients that do not support freezing.
//
// Once the freeze has begun, canceling ctx does not end the operation. The errors *InUseError,
// *ExistsError,
// *BusyError, *AnswerError and those of kind spdkrpc.Unreachable mean that no snapshot was taken.
// An *spdkrpc.Error of another kind comes from the target. If nothing needs to be frozen, mode.Idle
// leaves it to SPDK to refuse a name that is already in use.
func (q *Quiescer) Take(ctx context.Context, wanted []Snapshot, mode Mode) ([]Taken, error) {
	taken, err := q.take(ctx, wanted, mode)
	return taken, q.countRefusal(err, "SPDK can destroy the lvstore when it takes a snapshot of a volume that is being written")
}

func (q *Quiescer) take(ctx context.Context, wanted []Snapshot, mode Mode) (taken []Taken, err error) {
	o, err := q.enter(ctx, mode)
	if err != nil {
		return nil, err
	}
	defer o.leave()
	var volumes []*volume
	found, err := q.prepare(ctx, o, task{
		instead: "spdkgate_lvol_snapshot instead of bdev_lvol_snapshot", names: true,
		find: func(ctx context.Context, rpc *spdkrpc.Client) (_ []*volume, err error) {
			volumes, err = findVolumes(ctx, rpc, wanted)
			return volumes, err
		},
		related: func() lockSet { // new snapshots are not used until all of them have been taken
			l := lockSet{}
			for _, v := range volumes {
				l.add(exclusive, v.alias())
				l.add(shared, v.parent)
			}
			return l
		},
	}, mode)
	if err != nil {
		return nil, notExecuted(err)
	}
	several := len(found.volumes) > 1 // if one of several snapshots fails, the call deletes the others
	if several && mode.Wait == nil {  // before volumes are frozen, because this may have to wait
		leave, err := q.deleting(ctx, o.t)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	makeAll := func() (err error) {
		if err := mode.wait(ctx); err != nil {
			return err
		}
		// not earlier, because no client could list volumes while the operation waits
		if several && mode.Wait != nil {
			leave, err := q.deleting(context.WithoutCancel(ctx), o.t)
			if err != nil {
				return err
			}
			defer leave()
		}
		taken, err = q.takeAll(o.t, found.volumes)
		return err
	}
	if len(found.paths) == 0 {
		err = makeAll()
		o.free()
		q.reportConnected(o, found.idle)
		return taken, err
	}
	var e entry
	for _, v := range found.volumes {
		e.Making = append(e.Making, v.alias())
	}
	err = q.whileFrozen(ctx, o.t, found.paths, e, makeAll)
	for i := range taken {
		taken[i].Frozen = found.volumes[i].claimed
	}
	return taken, err
}

// takeAll takes the snapshots. If one fails, it deletes those already taken. takeAll waits as long
// as the connection lasts, because a volume must not be thawed while SPDK is taking or deleting its
// snapshot.
func (q *Quiescer) takeAll(t *Target, volumes []*volume) ([]Taken, error) {
	taken, errs := make([]Taken, len(volumes)), make([]error, len(volumes))
	done := make(chan struct{})
	go q.logSlow(volumes[0].alias(), len(volumes), done)
	defer close(done)
	var g errgroup.Group
	for i, v := range volumes {
		g.Go(func() error {
			taken[i].UUID, errs[i] = t.rpc.BdevLvolSnapshot(context.Background(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.uuid, SnapshotName: v.Name})
			if e := unreadable(errs[i]); e != nil { // SPDK may have taken the snapshot
				errs[i] = &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.OutcomeUnknown, Err: e}
			}
			return errs[i]
		})
	}
	err := g.Wait()
	if err == nil {
		return taken, nil
	}
	if err := q.undo(t, volumes, taken, errs); err != nil {
		return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.OutcomeUnknown, Err: err}
	}
	for _, e := range errs { // an unknown outcome is reported first
		if errors.Is(e, spdkrpc.OutcomeUnknown) {
			return nil, e
		}
	}
	return nil, err
}

// undo deletes the snapshots that were taken. The deletions run concurrently, because hosts are
// waiting. They must end before the thaw, because SPDK does not wait for I/O when it deletes a
// snapshot of a volume.
func (q *Quiescer) undo(t *Target, volumes []*volume, taken []Taken, errs []error) error {
	failed := make([]error, len(volumes))
	var g errgroup.Group
	for i, v := range volumes {
		if errs[i] != nil {
			continue
		}
		g.Go(func() error {
			failed[i] = t.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: taken[i].UUID})
			if failed[i] != nil {
				q.opts.Log.Error("cannot delete a snapshot after another snapshot of the same call failed", "snapshot", v.alias(), "error", failed[i])
			}
			return nil
		})
	}
	_ = g.Wait() // the group's functions return no errors
	return errors.Join(failed...)
}
