package quiesce

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SPDK copies clusters into a volume that it inflates one by one. If another allocation in the same
// lvstore and thread is not complete when the next cluster is due, SPDK queues that cluster, and
// then skips it: the volume lacks data of its parent, and SPDK answers with success. Inflations run
// on SPDK's main thread, as do shallow copies and NBD devices; hosts of NVMe-oF and iSCSI have
// threads of their own.

// Filling is the name that a call locks while SPDK may allocate clusters of an lvstore, given by
// its UUID, on its main thread.
func Filling(lvstore string) string { return "filling " + lvstore }

// checkNothingElseFills returns an InUseError if an NBD device may write to the lvstore of a volume
// that is to be inflated.
func checkNothingElseFills(ctx context.Context, rpc *spdkrpc.Client, v *volume, mode Mode) error {
	if mode.Unchecked {
		return nil
	}
	disks, err := rpc.NBDGetDisks(ctx, spdkrpc.NBDGetDisksParams{})
	if errors.Is(err, spdkrpc.MethodNotFound) {
		return nil // this build of SPDK lacks it
	}
	if err != nil {
		return err
	}
	for _, d := range disks {
		on, err := findVolume(ctx, rpc, Snapshot{Volume: d.BdevName})
		switch {
		case err == nil && on.storeID != v.storeID:
		case err == nil, errors.Is(err, spdkrpc.NoSuchDevice): // a bdev that is no volume may lie on one
			return &InUseError{Volume: v.Volume, Why: "the NBD device " + d.NBDDevice + " of bdev " + d.BdevName + " may write to its lvstore meanwhile. Detach it (nbd_stop_disk), then retry"}
		default:
			return err
		}
	}
	return nil
}
