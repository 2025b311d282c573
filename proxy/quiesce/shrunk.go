package quiesce

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A ShrunkError means that a snapshot cannot be deleted, because its clone would then show data of
// the snapshot's parent. Nothing was executed.
type ShrunkError struct {
	Snapshot string // the name that the caller used
	Clone    string
}

func (e *ShrunkError) Error() string {
	return fmt.Sprintf("snapshot %s is smaller than both its parent and its clone %s, because its volume was shrunk: if SPDK deleted it, the clone would contain the parent's data beyond the snapshot's end. Nothing was executed. "+
		"Inflate the clone (bdev_lvol_inflate) if this release of SPDK can, or copy its data to another volume and delete it; then delete the snapshot", e.Snapshot, e.Clone)
}

// checkNotShrunk returns a *ShrunkError if a snapshot is smaller than both its parent and its only
// clone. Between the end of the snapshot and the end of the parent, the clone contains no data. If
// SPDK deleted the snapshot, the clone would become the parent's clone, and would show the parent's
// data in that range. If the clone's size is unknown, clone is nil.
func checkNotShrunk(ctx context.Context, rpc *spdkrpc.Client, v, clone *volume, cloneName string) error {
	parent := v.parent
	if parent == "" {
		parent = v.external
	}
	if parent == "" || clone != nil && clone.size <= v.size {
		return nil
	}
	list, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &parent})
	if err != nil && !errors.Is(err, spdkrpc.NoSuchDevice) {
		return err
	}
	if err == nil && len(list) == 1 && sizeOf(list[0]) <= v.size {
		return nil
	}
	// a parent without a bdev may be larger than the snapshot
	return &ShrunkError{Snapshot: v.Volume, Clone: cloneName}
}
