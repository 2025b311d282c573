package quiesce

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Delete deletes a logical volume or a snapshot. When SPDK deletes a snapshot with a single
// clone, the clone takes over its clusters, and SPDK does not wait for I/O to the clone. So
// Delete freezes a clone that hosts use, or refuses if it cannot; mode is as for Take. If
// nothing must be frozen, Delete calls plain, which deletes the volume, while it keeps other
// calls from changing the clone.
//
// The errors are those of Take and of plain.
func (q *Quiescer) Delete(ctx context.Context, name string, mode Mode, plain func() error) (frozen bool, err error) {
	frozen, err = q.delete(ctx, name, mode, plain)
	return frozen, q.countRefusal(err, "SPDK can lose its data when it deletes the snapshot below a volume that is being written")
}

func (q *Quiescer) delete(ctx context.Context, name string, mode Mode, plain func() error) (frozen bool, err error) {
	o, err := q.enter(ctx, mode)
	if err != nil {
		return false, err
	}
	defer o.leave()
	var below *lvol
	found, err := q.prepare(ctx, o, task{
		instead: "spdkgate_lvol_delete instead of bdev_lvol_delete",
		find: func(ctx context.Context, rpc *spdkrpc.Client) (clones []*volume, err error) {
			below, clones, err = findWithClones(ctx, rpc, name)
			return clones, err
		},
		noEffect: func() bool { return below.clones != 1 }, // with several clones, SPDK refuses
	}, mode)
	if err != nil {
		return false, notExecuted(err)
	}
	if len(found.paths) > 0 {
		leave, err := q.deleting(ctx, o.t)
		if err != nil {
			return false, err
		}
		defer leave()
		return true, q.whileFrozen(ctx, o.t, found.paths, entry{Deleting: []string{below.alias}}, func() error {
			done := make(chan struct{})
			defer close(done)
			go q.logSlow(below.alias, 1, done)
			return o.t.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: below.uuid})
		})
	}
	o.free() // a deletion can take minutes, and plain has a slot of its own
	err = plain()
	q.reportConnected(o, found.idle)
	return false, err
}

// WhileUnused calls do, which changes a volume in a way that is unsafe while the volume is in
// use. It refuses if the volume is exported or otherwise used, and keeps other calls from
// changing that while do runs. The error is that of do, or as those of Take.
func (q *Quiescer) WhileUnused(ctx context.Context, user, name string, do func() error) error {
	o, err := q.lockUnused(ctx, user, name)
	if err != nil {
		return q.countRefusal(notExecuted(err), "SPDK can crash, or lose its data, when it changes what lies below a volume that is being written")
	}
	defer o.leave()
	o.free() // do has a slot of its own
	return do()
}

func (q *Quiescer) lockUnused(ctx context.Context, user, name string) (*operation, error) {
	o, err := q.enter(ctx, Mode{User: user})
	if err != nil {
		return nil, err
	}
	_, err = q.prepare(ctx, o, task{find: func(ctx context.Context, rpc *spdkrpc.Client) ([]*volume, error) {
		v, err := findVolume(ctx, rpc, Snapshot{Volume: name})
		if errors.Is(err, spdkrpc.NoSuchDevice) {
			return nil, nil // do gets SPDK's own error
		}
		return []*volume{v}, err
	}}, Mode{})
	if err != nil {
		o.leave()
	}
	return o, err
}

// An lvol is a logical volume that is to be deleted.
type lvol struct {
	uuid, alias string
	clones      int
}

// findWithClones finds a logical volume and those of its clones that can be written to. A
// clone without a bdev is left out, because nothing can use it.
func findWithClones(ctx context.Context, rpc *spdkrpc.Client, name string) (*lvol, []*volume, error) {
	v, err := findVolume(ctx, rpc, Snapshot{Volume: name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return &lvol{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	below := &lvol{uuid: v.uuid, alias: v.store + "/" + v.lvol, clones: len(v.clones)}
	var clones []*volume
	for _, clone := range v.clones {
		c, err := findVolume(ctx, rpc, Snapshot{Volume: v.store + "/" + clone})
		switch {
		case errors.Is(err, spdkrpc.NoSuchDevice):
		case err != nil:
			return nil, nil, err
		case !c.snapshot:
			clones = append(clones, c)
		}
	}
	return below, clones, nil
}
