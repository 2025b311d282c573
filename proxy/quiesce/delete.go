package quiesce

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Delete deletes a logical volume or a snapshot. A snapshot with a single clone
// hands its clusters to that clone, and SPDK does not wait for I/O to it. So a clone
// that hosts use is frozen meanwhile, or the deletion is refused if that cannot be;
// mode is as for Take. Where nothing has to be frozen, plain deletes it, while no
// other call changes the clone.
//
// Errors are as those of Take, and those of plain.
func (q *Quiescer) Delete(ctx context.Context, name string, mode Mode, plain func() error) (frozen bool, err error) {
	frozen, err = q.delete(ctx, name, mode, plain)
	return frozen, q.refused(err, "SPDK can lose its data when it deletes the snapshot below a volume that is being written")
}

func (q *Quiescer) delete(ctx context.Context, name string, mode Mode, plain func() error) (frozen bool, err error) {
	t, leave, err := q.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	var held holds
	defer held.giveAll()
	var below *lvol
	found, err := q.prepare(ctx, t, task{
		instead: "spdkgate_lvol_delete instead of bdev_lvol_delete",
		look: func(ctx context.Context, rpc *spdkrpc.Client) (clones []*volume, err error) {
			below, clones, err = lookBelow(ctx, rpc, name)
			return clones, err
		},
		moot: func() bool { return below.clones != 1 }, // SPDK refuses
	}, mode, &held)
	if err != nil {
		return false, before(err)
	}
	if len(found.paths) > 0 {
		leave, err := q.deleting(ctx, t)
		if err != nil {
			return false, err
		}
		defer leave()
		return true, q.frozen(ctx, t, found.paths, entry{Deleting: []string{below.alias}}, func() error {
			done := make(chan struct{})
			defer close(done)
			go q.logFailure(below.alias, 1, done)
			return t.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: below.uuid})
		})
	}
	if len(found.idle) == 0 {
		leave() // a deletion can take minutes
	}
	err = plain()
	q.reportConnected(t, found.idle)
	return false, err
}

// Unused does something to a volume that SPDK does not do safely while the volume
// is in use. It refuses if anything uses the volume, or could at once, and keeps
// calls from changing that meanwhile. The error is that of do, or as those of Take.
func (q *Quiescer) Unused(ctx context.Context, name string, do func() error) error {
	var held holds
	defer held.giveAll()
	if err := q.unused(ctx, name, &held); err != nil {
		return q.refused(before(err), "SPDK can crash, or lose its data, when it changes what lies below a volume that is being written")
	}
	return do()
}

func (q *Quiescer) unused(ctx context.Context, name string, held *holds) error {
	t, leave, err := q.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = q.prepare(ctx, t, task{look: func(ctx context.Context, rpc *spdkrpc.Client) ([]*volume, error) {
		v, err := lookOne(ctx, rpc, Snapshot{Volume: name})
		if errors.Is(err, spdkrpc.NoSuchDevice) {
			return nil, nil // SPDK says so
		}
		return []*volume{v}, err
	}}, Mode{}, held)
	return err
}

// An lvol is one that is to be deleted.
type lvol struct {
	uuid, alias string
	clones      int
}

// lookBelow finds an lvol and those of its clones that can be written to. What has
// no bdev has none: nothing uses it.
func lookBelow(ctx context.Context, rpc *spdkrpc.Client, name string) (*lvol, []*volume, error) {
	v, err := lookOne(ctx, rpc, Snapshot{Volume: name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return &lvol{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	below := &lvol{uuid: v.uuid, alias: v.store + "/" + v.lvol, clones: len(v.clones)}
	var clones []*volume
	for _, clone := range v.clones {
		c, err := lookOne(ctx, rpc, Snapshot{Volume: v.store + "/" + clone})
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
