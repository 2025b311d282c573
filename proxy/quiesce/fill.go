package quiesce

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SPDK inflates a volume by copying clusters into it one by one. If another allocation in the same
// lvstore and on the same thread is still in progress when SPDK reaches the next cluster, SPDK
// queues that cluster and then skips it. The volume then lacks some of its parent's data, but SPDK
// reports success. Inflations run on SPDK's main thread, as do shallow copies and NBD devices.
// Other threads execute the I/O of NVMe-oF and iSCSI hosts.

// Filling returns the name that a call locks while SPDK's main thread may allocate clusters in an
// lvstore, given by its UUID.
func Filling(lvstore string) string { return "filling " + lvstore }

// checkNothingElseFills returns an InUseError if an NBD device may write to the lvstore of a volume
// to be inflated.
func checkNothingElseFills(ctx context.Context, rpc *spdkrpc.Client, v *volume, mode Mode) error {
	if mode.Unchecked {
		return nil
	}
	disks, err := rpc.NBDGetDisks(ctx, spdkrpc.NBDGetDisksParams{})
	if errors.Is(err, spdkrpc.MethodNotFound) {
		return nil // this build of SPDK lacks the method
	}
	if err != nil {
		return err
	}
	for _, d := range disks {
		on, err := findVolume(ctx, rpc, Snapshot{Volume: d.BdevName})
		switch {
		case err == nil && on.storeID != v.storeID:
		// a bdev that is not a volume may be built on a volume
		case err == nil, errors.Is(err, spdkrpc.NoSuchDevice):
			return &InUseError{Volume: v.Volume, Why: "the NBD device " + d.NBDDevice + " of bdev " + d.BdevName + " may be writing to its lvstore. Detach it (nbd_stop_disk), then retry"}
		default:
			return err
		}
	}
	return nil
}
