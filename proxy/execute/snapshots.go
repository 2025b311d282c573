package execute

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	snapshotMethod = "bdev_lvol_snapshot"
	deleteMethod   = "bdev_lvol_delete"
)

// TakeSnapshots serves spdkgate_lvol_snapshot.
func (e *Executor) TakeSnapshots(ctx context.Context, c Command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateLvolSnapshotParams](c)
	if err != nil {
		return nil, err
	}
	mode := quiesce.Mode{Freeze: true, User: c.User}
	if p.Barrier != nil {
		b, err := e.barriers.Claim(c.barrierKey(p.Barrier.ID))
		if err != nil {
			return nil, &quiesce.BusyError{Why: err.Error(), Err: err}
		}
		defer b.Leave()
		mode.Wait = func(ctx context.Context) error {
			return b.Wait(ctx, time.Duration(p.Barrier.WaitMS)*time.Millisecond)
		}
	}
	var wanted []quiesce.Snapshot
	for _, r := range p.Snapshots {
		w := quiesce.Snapshot{Volume: r.LvolName, Name: r.SnapshotName}
		if r.NQN != nil {
			w.NQN = *r.NQN
		}
		wanted = append(wanted, w)
	}
	taken, err := e.quiescer.Take(ctx, wanted, mode)
	if err != nil {
		return nil, err
	}
	list := []spdkrpc.ProxySnapshot{}
	for _, t := range taken {
		list = append(list, spdkrpc.ProxySnapshot{UUID: t.UUID, Frozen: t.Frozen})
	}
	return json.Marshal(list)
}

// barrierWait is how long a client waits until volumes are frozen. The freeze itself has separate
// time limits.
const barrierWait = 10 * time.Second

// PassBarrier serves spdkgate_lvol_snapshot_barrier.
func (e *Executor) PassBarrier(ctx context.Context, c Command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateLvolSnapshotBarrierParams](c)
	if err != nil {
		return nil, err
	}
	switch key := c.barrierKey(p.ID); p.Step {
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepAwait:
		err = e.barriers.Arrived(ctx, key, barrierWait)
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepOpen:
		err = e.barriers.Open(key)
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepGiveUp:
		e.barriers.GiveUp(key)
	}
	if err != nil {
		err = &quiesce.BusyError{Why: err.Error(), Err: err}
	}
	return marshal(true, err)
}

// barrierKey returns the key of a barrier. The key contains the user's name, so users cannot reach
// each other's barriers.
func (c Command) barrierKey(id string) string { return c.User + "\x00" + id }

// paramsOf decodes the parameters of a call to one of the proxy's own methods.
func paramsOf[T any](c Command) (p T, err error) {
	text, err := json.Marshal(c.Params)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// mode returns the Mode for SPDK's own methods, which take snapshots and delete volumes.
func (c Command) mode() quiesce.Mode {
	return quiesce.Mode{Idle: true, Unchecked: c.SnapshotsInUse == config.SnapshotsAllow, User: c.User, Freeze: c.SnapshotsInUse == config.SnapshotsFreeze}
}

// takeSnapshot serves bdev_lvol_snapshot in place of SPDK, which can destroy the lvstore when it
// takes a snapshot of a volume in use.
func (e *Executor) takeSnapshot(ctx context.Context, c Command) (json.RawMessage, error) {
	volume, _ := c.Params["lvol_name"].(string)
	name, _ := c.Params["snapshot_name"].(string)
	taken, err := e.quiescer.Take(ctx, []quiesce.Snapshot{{Volume: volume, Name: name}}, c.mode())
	var exists *quiesce.ExistsError
	if errors.As(err, &exists) { // SPDK's own method must return SPDK's own error
		return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams, Message: "File exists"}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(taken[0].UUID)
}

// DeleteSafely serves spdkgate_lvol_delete.
func (e *Executor) DeleteSafely(ctx context.Context, c Command) (json.RawMessage, error) {
	name, _ := c.Params["name"].(string)
	c.Method, _ = e.Schema.Method(deleteMethod)
	frozen, err := e.quiescer.Delete(ctx, name, quiesce.Mode{Freeze: true, User: c.User}, func() (<-chan struct{}, error) {
		_, settled, err := e.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return marshal(spdkrpc.ProxyDeletion{Frozen: frozen}, err)
}

// deleteLvol serves bdev_lvol_delete in place of SPDK, because deleting a snapshot can damage a
// clone in use.
func (e *Executor) deleteLvol(ctx context.Context, c Command) (json.RawMessage, error) {
	name, _ := c.Params["name"].(string)
	result := json.RawMessage("true")
	_, err := e.quiescer.Delete(ctx, name, c.mode(), func() (settled <-chan struct{}, err error) {
		result, settled, err = e.forwardUntilSettled(ctx, c)
		return settled, err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// unusedVolumeParam lists the methods that require a volume not to be in use, because SPDK changes
// the blobs below it without waiting for I/O. It maps each method to the parameter that names the
// volume.
var unusedVolumeParam = map[string]string{
	"bdev_lvol_inflate": "name", "bdev_lvol_decouple_parent": "name",
	"bdev_lvol_set_parent": "lvol_name", "bdev_lvol_set_parent_bdev": "lvol_name",
}

// changeUnused serves the methods in unusedVolumeParam.
func (e *Executor) changeUnused(ctx context.Context, c Command) (result json.RawMessage, err error) {
	name, _ := c.Params[unusedVolumeParam[c.Method.Name]].(string)
	err = e.quiescer.WhileUnused(ctx, name, without(e.namedBy(c), name), !setsParent(c), c.mode(), func() (settled <-chan struct{}, err error) {
		if mustFitParent(c) {
			if err := e.checkFitsParent(ctx, c); err != nil {
				return nil, err
			}
		}
		if setsParent(c) {
			if err := e.checkNothingOn(ctx, c, name); err != nil {
				return nil, err
			}
		}
		result, settled, err = e.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}
