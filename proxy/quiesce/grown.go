package quiesce

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A GrownError means that a snapshot cannot be deleted, because its larger clone would have its
// former size after a restart, or would not load. Nothing was executed.
type GrownError struct {
	Snapshot string // the name that the caller used
	Clone    string
	Fixed    bool   // the clone is a snapshot, so that hosts cannot write to it
	From, To uint64 // a new allocation in this byte range of the clone makes the deletion safe
	Unread   error  // why the metadata could not be read; nil if it was read
}

func (e *GrownError) Error() string {
	remedy := fmt.Sprintf("First write to a part of the clone that was not written to since the snapshot, between bytes %d and %d, or inflate the clone (bdev_lvol_inflate) if this release of SPDK can", e.From, e.To)
	if e.Fixed {
		remedy = fmt.Sprintf("The clone is a snapshot: delete %s first", e.Clone)
	}
	if e.Unread != nil {
		remedy += ". The metadata, which shows whether the deletion is safe, could not be read: see the proxy's log"
	}
	return fmt.Sprintf("snapshot %s is smaller than its clone %s: if SPDK deleted it now, the clone could be as small as the snapshot after a restart, or be lost. Nothing was executed. %s", e.Snapshot, e.Clone, remedy)
}

// clustersPerPage is the number of clusters that an extent page describes.
const clustersPerPage = 512

// checkGrown returns a *GrownError if deleting a snapshot would leave its only clone with an extent
// page that describes fewer clusters than the clone has. SPDK gives the snapshot's extent page to a
// clone that has none for the same clusters, but does not rewrite the page
// (docs/upstream/lvol-delete-grown.md). No other call may change the lvols meanwhile; hosts may
// write to the clone unless it is frozen.
func (q *Quiescer) checkGrown(ctx context.Context, rpc *spdkrpc.Client, d *lvol) error {
	if d.grown == nil {
		return nil
	}
	stores, err := rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{UUID: &d.storeID})
	if err != nil {
		return err
	}
	if len(stores) != 1 || stores[0].ClusterSize == 0 {
		return &AnswerError{Method: "bdev_lvol_get_lvstores", Err: fmt.Errorf("the cluster size of lvstore %s is unknown", d.storeID)}
	}
	cluster := stores[0].ClusterSize
	clusters := d.size / cluster
	if clusters%clustersPerPage == 0 {
		return nil // each of its pages is full
	}
	page := clusters / clustersPerPage
	refused := &GrownError{Snapshot: d.asked, Clone: d.grown.name, From: page * clustersPerPage * cluster, To: (page + 1) * clustersPerPage * cluster}
	if d.grown.uuid == "" {
		return refused // a clone without a bdev cannot be examined
	}
	clone, err := findVolume(ctx, rpc, Snapshot{Volume: d.grown.uuid})
	if err != nil {
		return err
	}
	refused.Fixed, refused.To = clone.snapshot, min(refused.To, clone.size)
	if clone.allocated != nil && someWithin(*clone.allocated, cluster, clone.size, refused.To-refused.From) {
		return nil
	}
	if q.opts.HasExtentPage == nil {
		return refused
	}
	safe, err := q.opts.HasExtentPage(ctx, rpc, clone.uuid, page)
	if err == nil && !safe {
		// Since v25.09, a snapshot can have an extent page without any clusters, so its number of
		// clusters does not show whether it has one.
		var given bool
		given, err = q.opts.HasExtentPage(ctx, rpc, d.uuid, page)
		safe = !given
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		q.opts.Log.Warn("a snapshot is not deleted, because its clone is larger and the metadata of the lvstore could not be read", "snapshot", d.alias, "clone", d.grown.name, "error", err)
		refused.Unread = err
	} else if safe {
		return nil
	}
	return refused
}

// someWithin reports whether some of an lvol's allocated clusters must lie within a range of this
// many bytes. size is the lvol's size in bytes.
func someWithin(allocated, clusterBytes, size, within uint64) bool {
	return allocated > (size-within)/clusterBytes
}
