package quiesce

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Call makes a call that changes volumes. If it returns before SPDK has responded, settled is
// closed when SPDK responds. Otherwise, settled may be nil.
type Call func() (settled <-chan struct{}, err error)

// Delete deletes a logical volume or a snapshot. When SPDK deletes a snapshot with a single clone,
// the clone takes over the snapshot's clusters, and SPDK does not wait for I/O to the clone.
// Therefore, Delete freezes a clone that is in use, or returns an error if it cannot. mode has the
// same meaning as for Take. If no volume has to be frozen, Delete calls plain, which deletes the
// volume.
//
// While another operation on the volume, its parent or its clone is running, SPDK removes the
// volume from its lists and only then refuses the deletion. The space stays allocated, and the
// volume reappears after a restart. Therefore, Delete keeps other operations on these volumes from
// running until SPDK has responded.
//
// Delete returns the same errors as Take, a *ShrunkError, a *GrownError, or plain's error.
func (q *Quiescer) Delete(ctx context.Context, name string, mode Mode, plain Call) (frozen bool, err error) {
	frozen, err = q.delete(ctx, name, mode, plain)
	return frozen, q.countRefusal(err, "SPDK can lose its data when it deletes the snapshot below a volume that is being written")
}

func (q *Quiescer) delete(ctx context.Context, name string, mode Mode, plain Call) (frozen bool, err error) {
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
		related:  func() lockSet { return below.related },
		noEffect: func() bool { return below.clones != 1 }, // with several clones, SPDK refuses
	}, mode)
	if err != nil {
		return false, notExecuted(err)
	}
	if err := q.checkGrown(ctx, o.t.rpc, below); err != nil {
		return false, notExecuted(err)
	}
	if len(found.paths) > 0 {
		leave, err := q.deleting(ctx, o.t)
		if err != nil {
			return false, err
		}
		defer leave()
		removed, err := q.opts.Removing(ctx, o.t, below.uuid)
		if err != nil {
			return false, notExecuted(err)
		}
		defer removed()
		return true, q.whileFrozen(ctx, o.t, found.paths, entry{Deleting: []string{below.alias}}, func() error {
			done := make(chan struct{})
			defer close(done)
			go q.logSlow(below.alias, 1, done)
			// Until the freeze, a host may have discarded the clusters of an extent page, which
			// releases before v25.09 then free.
			if err := q.checkGrown(ctx, o.t.rpc, below); err != nil {
				return notExecuted(err)
			}
			return o.t.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: below.uuid})
		})
	}
	o.done() // a deletion can take minutes, and plain uses its own slot
	o.settled, err = plain()
	q.reportConnected(o, found.idle)
	return false, err
}

// WhileUnused calls do, which changes a volume in a way that is unsafe while the volume is in use.
// If the volume is exported or otherwise in use, WhileUnused returns an error instead. Until SPDK
// has responded, other calls cannot start to use the volume or delete its ancestors. others lists
// the other bdevs named in the call. fills means that do inflates the volume; only one inflation
// per lvstore may run at a time. The error is do's, or one of those that Take returns.
func (q *Quiescer) WhileUnused(ctx context.Context, name string, others []string, fills bool, mode Mode, do Call) error {
	o, err := q.lockUnused(ctx, name, others, fills, mode)
	if err != nil {
		return q.countRefusal(notExecuted(err), "SPDK can crash, or lose its data, when it changes what lies below a volume that is being written")
	}
	defer o.leave()
	o.done() // do uses its own slot
	o.settled, err = do()
	return err
}

func (q *Quiescer) lockUnused(ctx context.Context, name string, others []string, fills bool, mode Mode) (*operation, error) {
	o, err := q.enter(ctx, mode)
	if err != nil {
		return nil, err
	}
	var related lockSet
	_, err = q.prepare(ctx, o, task{
		find: func(ctx context.Context, rpc *spdkrpc.Client) ([]*volume, error) {
			related = locksOf(shared, others)
			v, err := findVolume(ctx, rpc, Snapshot{Volume: name})
			if errors.Is(err, spdkrpc.NoSuchDevice) {
				related.add(exclusive, name)
				return nil, nil // let SPDK report the error to do
			}
			if err != nil {
				return nil, err
			}
			if fills {
				related.add(exclusive, Filling(v.storeID))
				if err := checkNothingElseFills(ctx, rpc, v, mode); err != nil {
					return nil, err
				}
			}
			return []*volume{v}, v.shareAncestors(ctx, rpc, related)
		},
		related: func() lockSet { return related },
	}, Mode{User: mode.User, Unchecked: mode.Unchecked})
	if err != nil {
		o.leave()
	}
	return o, err
}

// shareAncestors adds shared locks on a volume's ancestors to l, because SPDK reads these snapshots
// during the operation.
func (v *volume) shareAncestors(ctx context.Context, rpc *spdkrpc.Client, l lockSet) error {
	for parent := v.parent; parent != ""; {
		l.add(shared, parent)
		p, err := findVolume(ctx, rpc, Snapshot{Volume: parent})
		if errors.Is(err, spdkrpc.NoSuchDevice) {
			return nil
		}
		if err != nil {
			return err
		}
		parent = p.parent
	}
	return nil
}

// An lvol is a logical volume to be deleted.
type lvol struct {
	uuid, alias string
	clones      int
	related     lockSet // the volume itself, its parent, and clones that are snapshots

	asked   string // the name that the caller used
	storeID string // UUID of the lvstore
	size    uint64 // in bytes
	grown   *grown // the only clone, if it may be larger; otherwise nil
}

// A grown is a clone that may be larger than its snapshot.
type grown struct {
	name, uuid string // uuid is "" if the clone has no bdev
}

// findWithClones finds a logical volume and its writable clones. It omits clones without a bdev,
// because nothing can use them.
func findWithClones(ctx context.Context, rpc *spdkrpc.Client, name string) (*lvol, []*volume, error) {
	related := locksOf(exclusive, []string{name})
	v, err := findVolume(ctx, rpc, Snapshot{Volume: name})
	if id, wrong := uuid.Parse(name); wrong == nil && errors.Is(err, spdkrpc.NoSuchDevice) {
		// bdev_lvol_delete accepts other spellings of a bdev's UUID.
		related.add(exclusive, id.String())
		v, err = findVolume(ctx, rpc, Snapshot{Volume: id.String()})
	}
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return &lvol{related: related}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	related.add(exclusive, v.names...)
	related.add(shared, v.parent)
	below := &lvol{uuid: v.uuid, alias: v.store + "/" + v.lvol, clones: len(v.clones), related: related, asked: v.Volume, storeID: v.storeID, size: v.size}
	var clones []*volume
	for _, clone := range v.clones {
		c, err := findVolume(ctx, rpc, Snapshot{Volume: v.store + "/" + clone})
		switch {
		case errors.Is(err, spdkrpc.NoSuchDevice):
			c = nil
			related.add(exclusive, v.store+"/"+clone)
		case err != nil:
			return nil, nil, err
		case c.snapshot:
			related.add(exclusive, c.names...)
		default:
			clones = append(clones, c)
		}
		if len(v.clones) == 1 {
			if err := checkNotShrunk(ctx, rpc, v, c, v.store+"/"+clone); err != nil {
				return nil, nil, err
			}
			switch {
			case c == nil:
				below.grown = &grown{name: v.store + "/" + clone}
			case c.size > v.size:
				below.grown = &grown{name: v.store + "/" + clone, uuid: c.uuid}
			}
		}
	}
	return below, clones, nil
}
