package spdktest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A target that examines all bdevs loads what a host has written into a volume, from a snapshot of
// it; a target that examines listed bdevs does not, and lists them in its configuration.
func TestTargetExaminesWhatHostsWrite(t *testing.T) {
	for _, listed := range []bool{false, true} {
		target, err := Start(Options{ExamineListed: listed})
		require.NoError(t, err)
		t.Cleanup(func() { _ = target.Close() })
		socket := spdkrpc.NewSocket(target.Socket())
		t.Cleanup(func() { _ = socket.Close() })
		rpc := spdkrpc.NewClient(socket)
		ctx := t.Context()
		_, err = rpc.BdevMallocCreate(ctx, spdkrpc.BdevMallocCreateParams{Name: new("disk"), NumBlocks: 1 << 17, BlockSize: 4096})
		require.NoError(t, err)
		_, err = rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs"})
		require.NoError(t, err)
		volume, err := rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: "v", SizeInMiB: 64, LvsName: new("lvs")})
		require.NoError(t, err)
		require.NoError(t, target.WriteStore(volume, WrittenStore{Name: "inner", Lvols: []WrittenLvol{{Name: "x", External: volume}, {Name: "twice", UUID: volume}}}))
		snapshot, err := rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: volume, SnapshotName: "s"})
		require.NoError(t, err)
		stores, err := rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
		require.NoError(t, err)
		if listed {
			assert.Len(t, stores, 1)
			err = rpc.BdevExamine(ctx, spdkrpc.BdevExamineParams{Name: "later"})
			require.NoError(t, err)
			err = rpc.BdevExamine(ctx, spdkrpc.BdevExamineParams{Name: "later"})
			require.ErrorIs(t, err, spdkrpc.Exists)
			config, err := rpc.FrameworkGetConfig(ctx, spdkrpc.FrameworkGetConfigParams{Name: "bdev"})
			require.NoError(t, err)
			assert.Equal(t, "bdev_examine", config[1].Object.Method)
			continue
		}
		require.Len(t, stores, 2)
		assert.Equal(t, snapshot, stores[1].BaseBdev)
		inner, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new("inner/x")})
		require.NoError(t, err)
		assert.Len(t, inner, 1)
		original, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new(volume)})
		require.NoError(t, err)
		assert.Equal(t, "lvs/v", original[0].Aliases[0], "the live volume keeps its UUID")
		assert.True(t, original[0].Claimed, "as an external snapshot")
		err = rpc.BdevExamine(ctx, spdkrpc.BdevExamineParams{Name: "disk"})
		require.ErrorIs(t, err, spdkrpc.InvalidParams)
	}
}
