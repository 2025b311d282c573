package spdktest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a host has written an lvstore into a volume, a target that examines all bdevs loads this
// lvstore from a snapshot of the volume. A target that examines only listed bdevs does not load it.
// Its configuration lists the examined bdevs.
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
		assert.Equal(t, "lvs/v", original[0].Aliases[0], "the first volume with this UUID keeps it")
		assert.True(t, original[0].Claimed, "as an external snapshot")
		err = rpc.BdevExamine(ctx, spdkrpc.BdevExamineParams{Name: "disk"})
		require.ErrorIs(t, err, spdkrpc.InvalidParams)
	}
}

// If a target examines all bdevs, a superblock that a host has written into a volume creates a RAID
// after a restart. The superblock has no effect on snapshots and clones, because it does not
// contain their UUIDs.
func TestTargetExaminesWrittenSuperblocks(t *testing.T) {
	for _, listed := range []bool{false, true} {
		disk, config := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(disk, nil, 0o600))
		require.NoError(t, os.Truncate(disk, 1<<29))
		target, err := Start(Options{ConfigFile: config})
		require.NoError(t, err)
		t.Cleanup(func() { _ = target.Close() })
		socket := spdkrpc.NewSocket(target.Socket())
		t.Cleanup(func() { _ = socket.Close() })
		rpc := spdkrpc.NewClient(socket)
		ctx := t.Context()
		_, err = rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: disk, BlockSize: new(uint32(4096))})
		require.NoError(t, err)
		_, err = rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs"})
		require.NoError(t, err)
		volume, err := rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: "v", SizeInMiB: 64, LvsName: new("lvs")})
		require.NoError(t, err)
		require.NoError(t, target.WriteRAID(volume, "array"))
		_, err = rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: volume, SnapshotName: "s"})
		require.NoError(t, err)
		_, err = rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new("array")})
		require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
		text := `{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_set_options","params":{"bdev_auto_examine":` + strconv.FormatBool(!listed) + `}},` +
			`{"method":"bdev_aio_create","params":{"name":"disk","filename":"` + disk + `","block_size":4096}}`
		if listed {
			text += `,{"method":"bdev_examine","params":{"name":"disk"}}`
		}
		require.NoError(t, os.WriteFile(config, []byte(text+`]}]}`), 0o600))
		target.Crash()
		require.NoError(t, target.Restart())
		found, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new("array")})
		if listed {
			require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, volume, *found[0].DriverSpecific.RAID.BaseBdevsList[0].Object.Name)
		found, err = rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new(volume)})
		require.NoError(t, err)
		assert.True(t, found[0].Claimed)
	}
}
