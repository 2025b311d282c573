package proxy

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
	snapshotMethod     = "bdev_lvol_snapshot"
	safeSnapshotMethod = "spdkgate_lvol_snapshot"
	barrierMethod      = "spdkgate_lvol_snapshot_barrier"
	deleteMethod       = "bdev_lvol_delete"
	safeDeleteMethod   = "spdkgate_lvol_delete"
)

// takeSnapshots answers spdkgate_lvol_snapshot.
func (s *Server) takeSnapshots(ctx context.Context, c command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateLvolSnapshotParams](c)
	if err != nil {
		return nil, err
	}
	mode := quiesce.Mode{Freeze: true, User: c.user}
	if p.Barrier != nil {
		b, err := s.barriers.Claim(c.barrierKey(p.Barrier.ID))
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
	taken, err := s.quiescer.Take(ctx, wanted, mode)
	if err != nil {
		return nil, err
	}
	list := []spdkrpc.ProxySnapshot{}
	for _, t := range taken {
		list = append(list, spdkrpc.ProxySnapshot{UUID: t.UUID, Frozen: t.Frozen})
	}
	return json.Marshal(list)
}

// barrierWait bounds how long a client waits for volumes to be frozen, which has limits of its own.
const barrierWait = 10 * time.Second

// passBarrier answers spdkgate_lvol_snapshot_barrier.
func (s *Server) passBarrier(ctx context.Context, c command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateLvolSnapshotBarrierParams](c)
	if err != nil {
		return nil, err
	}
	switch key := c.barrierKey(p.ID); p.Step {
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepAwait:
		err = s.barriers.Arrived(ctx, key, barrierWait)
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepOpen:
		err = s.barriers.Open(key)
	case spdkrpc.SpdkgateLvolSnapshotBarrierStepGiveUp:
		s.barriers.GiveUp(key)
	}
	if err != nil {
		err = &quiesce.BusyError{Why: err.Error(), Err: err}
	}
	return marshalResult(true, err)
}

// barrierKey names a barrier. Users cannot name each other's.
func (c command) barrierKey(id string) string { return c.user + "\x00" + id }

// paramsOf decodes the parameters of a call to one of the proxy's own methods.
func paramsOf[T any](c command) (p T, err error) {
	text, err := json.Marshal(c.params)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// mode says how SPDK's own methods for snapshots and deletions treat volumes in use.
func (c command) mode() quiesce.Mode {
	return quiesce.Mode{Idle: true, Unchecked: c.settings.snapshotsInUse == config.SnapshotsAllow, User: c.user, Freeze: c.settings.snapshotsInUse == config.SnapshotsFreeze}
}

// takeSnapshot answers bdev_lvol_snapshot: SPDK's own snapshot of a volume in use can destroy
// the lvstore.
func (s *Server) takeSnapshot(ctx context.Context, c command) (json.RawMessage, error) {
	volume, _ := c.params["lvol_name"].(string)
	name, _ := c.params["snapshot_name"].(string)
	taken, err := s.quiescer.Take(ctx, []quiesce.Snapshot{{Volume: volume, Name: name}}, c.mode())
	var exists *quiesce.ExistsError
	if errors.As(err, &exists) { // SPDK's own error, as the method is SPDK's
		return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams, Message: "File exists"}
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(taken[0].UUID)
}

// deleteSafely answers spdkgate_lvol_delete.
func (s *Server) deleteSafely(ctx context.Context, c command) (json.RawMessage, error) {
	method, _ := s.schema.Method(deleteMethod)
	name, _ := c.params["name"].(string)
	frozen, err := s.quiescer.Delete(ctx, name, quiesce.Mode{Freeze: true, User: c.user}, func() (<-chan struct{}, error) {
		_, settled, err := s.forwardUntilSettled(ctx, c.withMethod(method))
		return settled, err
	})
	return marshalResult(spdkrpc.ProxyDeletion{Frozen: frozen}, err)
}

// deleteLvol answers bdev_lvol_delete: deleting a snapshot can damage its clone while that
// is in use.
func (s *Server) deleteLvol(ctx context.Context, c command) (json.RawMessage, error) {
	name, _ := c.params["name"].(string)
	result := json.RawMessage("true")
	_, err := s.quiescer.Delete(ctx, name, c.mode(), func() (settled <-chan struct{}, err error) {
		result, settled, err = s.forwardUntilSettled(ctx, c)
		return settled, err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// unusedVolumeParam maps a method to the parameter that names a volume which must not be in
// use: SPDK changes the blobs below that volume without waiting for I/O.
var unusedVolumeParam = map[string]string{
	"bdev_lvol_inflate": "name", "bdev_lvol_decouple_parent": "name",
	"bdev_lvol_set_parent": "lvol_name", "bdev_lvol_set_parent_bdev": "lvol_name",
}

// changeUnused answers the methods of unusedVolumeParam.
func (s *Server) changeUnused(ctx context.Context, c command) (result json.RawMessage, err error) {
	name, _ := c.params[unusedVolumeParam[c.method.Name]].(string)
	err = s.quiescer.WhileUnused(ctx, name, without(s.namedBy(c), name), c.mode(), func() (settled <-chan struct{}, err error) {
		if mustFitParent(c) {
			if err := s.checkFitsParent(ctx, c); err != nil {
				return nil, err
			}
		}
		if setsParent(c) {
			if err := s.checkNothingOn(ctx, c, name); err != nil {
				return nil, err
			}
		}
		result, settled, err = s.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}
